"""Health in the process: every scan and signal goes to the keeper, and every verdict to the doors.

The keeper is loaded once the kubelet has been served, because it is not needed before: until a signal arrives, its
verdict equals the scan's. If an earlier process has saved state, the keeper is loaded at once, so that a device that
waits for a reset is not offered for a moment. Signals come from real hardware; a recorded node has only its scans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from node.clocks import Clocks
from node.events import EventBus, EventRecorder
from node.inventory.loop import SnapshotPublished
from node.inventory.model import Snapshot, SnapshotJudged, SourceStatus
from node.inventory.source import Source
from node.opening import boot_id
from node.rules import offers_nics
from ostler.agent.loading import KubeletFirst, load
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from node.health.keeper import HealthDataChanged, HealthKeeper
    from node.inventory.live.hardware import LiveHardware
    from node.inventory.nvidia.signals.source import NvmlSignals
    from ostler.admin.health import HealthView
    from ostler.agent.health_record import HealthRecord
    from ostler.metrics.gauges import HealthFigures
    from protos.agent.v1alpha1 import agent_pb2

FILE = "health.json"


class HealthWatch:
    """Judges every published snapshot, and publishes ``SnapshotJudged`` on ``bus``; for the event loop only."""

    def __init__(
        self, settings: Settings, sources: Sequence[Source], bus: EventBus, clocks: Clocks, events: EventRecorder
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._bus = bus
        self._clocks = clocks
        self._events = events
        self._scanned = Snapshot()
        self._keeper: HealthKeeper | None = None
        self._record: HealthRecord | None = None
        self._nvml: NvmlSignals | None = None
        self.live: LiveHardware | None = None
        self._in_pods: dict[str, Path] = {}
        """By device, the network namespace that has its interface."""
        bus.subscribe(SnapshotPublished, self._scanned_anew)

    @property
    def judged(self) -> Snapshot:
        """The newest snapshot, with the verdicts in its devices' health."""
        return self._scanned if self._keeper is None else self._keeper.judged

    def begin(self) -> None:
        """Note that this instance serves from now on; saved state takes effect before anything is shown."""
        if (self._settings.state_dir / FILE).exists():
            self._loaded()

    def observe(self, snapshot: Snapshot) -> None:
        """Judge the snapshot of a scan."""
        self._scanned = snapshot
        if self.live is not None:
            self.live.observe(snapshot, self._settings.rules)
        if self._keeper is None:
            self._bus.publish(SnapshotJudged(snapshot))
        else:
            self._keeper.observe(snapshot)
        if self._nvml is not None:
            # After the keeper, which then hears what happened to a device before it was known.
            self._nvml.observe(snapshot)

    def _save(self, changed: HealthDataChanged) -> None:
        if self._record is not None:
            self._record.save(changed.data)

    def _scanned_anew(self, published: SnapshotPublished) -> None:
        self.observe(published.snapshot)

    def watch(self, device: str, netns: Path) -> None:
        """Judge the link of this device's interface in the network namespace into which this agent has moved it."""
        self._in_pods[device] = netns
        if self.live is not None:
            self.live.follow(self._in_pods)

    def forget(self, device: str) -> None:
        """The device's interface is in no pod any more."""
        if self._in_pods.pop(device, None) is not None and self.live is not None:
            self.live.follow(self._in_pods)

    def look(self) -> None:
        """Have values that only getters report read soon."""
        if self._nvml is not None:
            self._nvml.look()

    def use(self, settings: Settings) -> None:
        """Follow other rules, and another policy."""
        self._settings = settings
        if self.live is not None:
            self.live.observe(self._scanned, self._settings.rules)
        if self._keeper is not None:
            self._keeper.use(settings.health)
            self._repeat_signals()

    def view(self) -> HealthView:
        """Health for people."""
        from ostler.admin.health import HealthView

        keeper = self._loaded()
        assert self._record is not None
        return HealthView(keeper, self.sources(), self._record.kept)

    @property
    def unkept(self) -> str:
        """Why a restart would forget the health of devices, empty if it would not."""
        return "" if self._record is None else self._record.problem

    def summary(self) -> agent_pb2.HealthStatus | None:
        """Health in one line; None while only scans have reported on devices."""
        return None if self._keeper is None else self.view().summary()

    def figures(self) -> HealthFigures | None:
        """The values for metrics; None until the keeper is loaded, which only the loop does. For any thread."""
        from ostler.metrics.gauges import HealthFigures

        return None if self._keeper is None else HealthFigures(self._keeper.metrics, self.view().report())

    def sources(self) -> tuple[SourceStatus, ...]:
        """The sources of signals besides the scans."""
        found = []
        if self.live is not None:
            found.append(self.live.status(interfaces=offers_nics(self._settings.rules)))
        if self._nvml is not None:
            found.append(self._nvml.status())
        return tuple(found)

    async def run(self, first: KubeletFirst, active: asyncio.Event) -> None:
        """Listen to hardware until cancelled, and judge once this instance is ``active``."""
        await first.turn()
        await load(
            "node.inventory.live.hardware",
            "node.health.keeper",
            "ostler.agent.health_record",
            "node.inventory.nvidia.signals.source",
        )
        async with asyncio.TaskGroup() as group:
            if self._settings.inventory.recorded is None:
                group.create_task(self._listen(), name="live hardware")
            await active.wait()
            self._loaded()
            if self._record is not None:
                group.create_task(self._record.run(), name="health record")
            signals = self._signals()
            if signals is not None:
                group.create_task(signals.run(), name="NVML signals")

    async def _listen(self) -> None:
        """Listen for signals; the scan that this begins with finds what happened before."""
        from node.inventory.live.hardware import LiveHardware

        settings = self._settings
        self.live = LiveHardware(
            self._bus,
            sys=settings.roots.sys,
            proc=settings.roots.proc,
            dev_root=settings.nvidia.dev_root_mount,
            clocks=self._clocks,
        )
        self.live.observe(self._scanned, self._settings.rules)
        self.live.follow(self._in_pods)
        await self.live.run()

    def _signals(self) -> NvmlSignals | None:
        from ostler.agent.sources import nvml_sessions

        sessions = nvml_sessions(self._sources)
        if sessions is None:
            return None
        from node.inventory.nvidia.signals.source import NvmlSignals

        self._nvml = NvmlSignals(sessions, self._bus, clocks=self._clocks)
        self._nvml.observe(self._scanned)
        return self._nvml

    def _loaded(self) -> HealthKeeper:
        if self._keeper is None:
            from node.health.keeper import HealthDataChanged, HealthKeeper
            from ostler.agent.health_record import HealthRecord

            settings = self._settings
            boot = boot_id(settings.roots.proc)
            self._record = HealthRecord(settings.state_dir / FILE, boot, self._events)
            self._bus.subscribe(HealthDataChanged, self._save)
            loop = asyncio.get_running_loop()
            self._keeper = HealthKeeper(
                settings.health,
                self._bus,
                clock=self._clocks.clock,
                later=loop.call_later,
                steady=loop.time,
                events=self._events,
                boot=boot,
            )
            self._keeper.recall(self._record.load())
            if self._scanned.generation:
                self._keeper.observe(self._scanned)
            self._repeat_signals()
        return self._keeper

    def _repeat_signals(self) -> None:
        """Publish lasting signals again, which came before the keeper or under another policy; getters are polled."""
        if self.live is not None:
            self.live.republish()

    def close(self) -> None:
        """Stop acting on the passing of time."""
        if self._keeper is not None:
            self._keeper.close()
