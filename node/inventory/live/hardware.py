"""Live hardware as one object: uevents, link notifications and polls, each supervised, together one stream of hints.

The same parts notice when devices fall ill. Where health is judged, ``kernel_health`` reports what they see at once,
and sweeps look at what has no event.

A part that fails never ends the agent: the failure is logged once and shown in the status, the part is started again
after growing pauses, and meanwhile folders are compared instead. The inventory's full rescan continues below all of it.

Hints that come close together become one wake-up. A NIC that is plugged in makes a dozen events within milliseconds
(function, driver, interface, its new name), and a scan in the middle would publish half of them. The inventory's own
least interval between scans comes on top.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from node.clocks import SYSTEM, Clocks
from node.events import EventBus
from node.inventory.live import signatures
from node.inventory.live.function_files import FunctionFiles
from node.inventory.live.kernel_health import KernelHealth
from node.inventory.live.links import LinkMonitor
from node.inventory.live.polls import FolderEvents, PolledChange, Polls
from node.inventory.live.sweeps import Sweeps, Swept
from node.inventory.live.udev import EventState, Reach, UdevStream, Uevent, UeventStream, UeventsUnavailable, look
from node.inventory.live.uevents import Relevance, UeventMonitor
from node.inventory.model import NIC_KINDS, Snapshot, SourceState, SourceStatus
from node.inventory.source import HardwareHint, ScanWanted
from node.metrics import Counter, Metric, metrics_of
from node.rules import Rule, rule_for

if TYPE_CHECKING:
    from node.interfaces.watch import PodLinkWatch

log = logging.getLogger("ostler.live")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds before a failed part is tried again."""
_WELL = 10.0
"""Seconds after which a running part counts as recovered, so that its pauses start short again."""


class LivePart(Protocol):
    """A part of the watch that may fail."""

    name: str

    async def run(self) -> None:
        """Run until cancelled; raises if it cannot go on."""


class LiveHardware:
    """Publishes ``ScanWanted`` on ``bus`` soon after hardware may have changed, and every ``Look`` at devices' health.

    ``sys``, ``proc`` and ``dev_root`` are the inventory's roots. ``reach`` and ``open_stream`` decide where uevents
    come from. pyudev is loaded and sockets are opened by ``run``, which may be started late: it asks for a scan when it
    begins to listen. ``sweeps``: also check what has no event, for the judgement of health. All
    methods belong to the thread of the loop.
    """

    name = "events"

    def __init__(
        self,
        bus: EventBus,
        *,
        sys: Path = Path("/sys"),
        proc: Path = Path("/proc"),
        dev_root: Path = Path("/"),
        sweeps: bool = True,
        clocks: Clocks = SYSTEM,
        reach: Callable[[], Reach] = look,
        open_stream: Callable[[EventState], UeventStream] = UdevStream,
    ) -> None:
        self._wakeups = Wakeups(bus)
        self._health = KernelHealth(bus, clocks)
        # A bus of its own: only this part uses what the others find.
        parts = EventBus()
        parts.subscribe(HardwareHint, self._hinted)
        parts.subscribe(PolledChange, self._polled)
        parts.subscribe(Uevent, self._on_uevent)
        parts.subscribe(Swept, self._health.swept)
        files = FunctionFiles(str(sys), str(dev_root).rstrip("/"), SYSTEM)
        self._sweeps = Sweeps(files, parts)
        self._uevents = UeventMonitor(parts, Relevance(str(sys)), reach=reach, open_stream=open_stream)
        self._links = LinkMonitor(parts, listener=self._health)
        self._ports_matter = True
        """Until devices are known.

        A reading may be a command to firmware, so ports are read only if NICs are offered.
        """
        device_root = str(dev_root).rstrip("/")
        self._polls = Polls(
            parts,
            (
                signatures.mig_instances(str(proc)),
                signatures.compute_partitions(str(sys)),
                signatures.watched_files(str(sys)),
            ),
            (
                (lambda: self._ports_matter, signatures.infiniband_ports(str(sys))),
                (self._without_uevents, signatures.hardware(str(sys))),
                (lambda: not self._links.listening, signatures.interfaces(str(sys))),
            ),
            reported=(
                signatures.nvidia_module(str(sys), str(proc)),
                signatures.device_files(device_root),
            ),
            folders=FolderEvents(signatures.device_folders(device_root)),
            news=self._news,
        )
        self._parts: tuple[LivePart, ...] = (self._uevents, self._links, self._polls)
        if sweeps:
            self._parts = (*self._parts, self._sweeps)
        self._pod_links: PodLinkWatch | None = None
        self._faults: dict[str, str] = {}
        self._running: asyncio.TaskGroup | None = None

    @property
    def state(self) -> EventState:
        """The present source of hardware events."""
        return self._uevents.state

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The parts' metrics."""
        parts = self._uevents, self._links, self._polls, self._wakeups
        return tuple(metric for part in parts for metric in metrics_of(part))

    @property
    def swept(self) -> bool:
        """Whether all devices have been read."""
        return self._sweeps.count > 0

    def observe(self, snapshot: Snapshot, rules: tuple[Rule, ...]) -> None:
        """Use these devices and rules from now on; call it before ``run``, and whenever either changes.

        The devices are as a scan found them, without a verdict on health: a verdict must not come back as a finding.
        """
        mattered, self._ports_matter = self._ports_matter, _nics_are_offered(snapshot, rules)
        if self._running is not None and self._ports_matter and not mattered:
            # The last scan's reading of the ports may be a minute old.
            self._wakeups.hint()
            self._polls.hint()
        self._health.observe(snapshot, rules)
        self._sweeps.show(snapshot, rules)

    def follow(self, places: Mapping[str, Path]) -> None:
        """Judge the links of these devices in the network namespaces into which this agent has moved them."""
        if self._pod_links is None:
            if not places:
                return
            # Here and not above: only nodes that move interfaces pay for it.
            from node.interfaces.watch import PodLinkWatch

            self._pod_links = PodLinkWatch(self._health)
            self._parts = (*self._parts, self._pod_links)
            if self._running is not None:
                self._start(self._running, self._pod_links)
        self._pod_links.follow(places)

    def republish(self) -> None:
        """Report all known health again, for a new subscriber or a changed policy."""
        self._health.republish()

    def status(self, *, interfaces: bool = True) -> SourceStatus:
        """The status for people: failed means that some changes are noticed late, with what to do about it.

        ``interfaces``: whether changes of network interfaces matter to anybody.
        """
        if self._running is None:
            return SourceStatus(self.name, SourceState.WAITING, "not listening yet")
        trouble = list(self._faults.values())
        uevents = self._uevents
        if uevents.missed and (interfaces or uevents.state is not EventState.KERNEL):
            trouble.append(f"{uevents.missed}; set {uevents.hint}" if uevents.hint else uevents.missed)
        if self._polls.stalled:
            trouble.append("a device does not answer when its state is read")
        trouble += [f"{address} does not answer when its state is read" for address in sorted(self._sweeps.hung)]
        if self._sweeps.stopped:
            trouble.append("ostler checks no device's files until one of these answers")
        if trouble:
            return SourceStatus(
                self.name, SourceState.FAILED, f"hardware changes may be noticed late: {'; '.join(trouble)}"
            )
        return SourceStatus(self.name, SourceState.OK, f"from {uevents.state}, rtnetlink and polls")

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._running = group
                for part in self._parts:
                    self._start(group, part)
        finally:
            self._running = None
            self._wakeups.close()

    def _start(self, group: asyncio.TaskGroup, part: LivePart) -> None:
        group.create_task(self._supervise(part), name=f"live {part.name}")

    def _on_uevent(self, event: Uevent) -> None:
        if self._health.uevent(event):
            self._sweeps.hint()

    def _hinted(self, _: HardwareHint) -> None:
        self._wakeups.hint()
        self._polls.hint()

    def _polled(self, _: PolledChange) -> None:
        self._wakeups.hint()
        self._sweeps.hint()

    def _without_uevents(self) -> bool:
        return self._uevents.state is EventState.POLLING or bool(self._uevents.missed)

    def _news(self) -> tuple[int, int] | None:
        return None if self._without_uevents() else (self._uevents.hints, self._uevents.overflows.total)

    async def _supervise(self, part: LivePart) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            began = loop.time()
            watch = loop.call_later(_WELL, self._faults.pop, part.name, None)
            try:
                await part.run()
            except Exception as error:  # noqa: BLE001 - the log and the status tell; polling goes on in its place
                self._failed(part.name, error)
                self._polls.hint()
            finally:
                watch.cancel()
            if loop.time() - began > _WELL:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failed(self, name: str, error: Exception) -> None:
        text = str(error) if isinstance(error, UeventsUnavailable) else f"{name}: {str(error) or type(error).__name__}"
        if self._faults.get(name) == text:
            return
        self._faults[name] = text
        log.warning(
            "listening to hardware failed in part; comparing folders instead", extra={"part": name, "error": text}
        )


def _nics_are_offered(snapshot: Snapshot, rules: tuple[Rule, ...]) -> bool:
    return any(device.kind in NIC_KINDS and rule_for(device, rules) is not None for device in snapshot.devices)


QUIET = 0.05
"""Seconds without a hint after which a burst is over."""
LONGEST = 0.25
"""Most seconds that a hint waits."""


class Wakeups:
    """Publishes ``ScanWanted`` on ``bus`` once for hints that come close together; belongs to the thread of the loop.

    Invariants: every hint is followed by a wake-up within ``longest`` seconds; a single hint by one after ``quiet``.
    """

    def __init__(self, bus: EventBus, *, quiet: float = QUIET, longest: float = LONGEST) -> None:
        self._bus = bus
        self._quiet = quiet
        self._longest = longest
        self._first = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.count = Counter("ostler_hardware_wakeups", "Scans asked for because hardware may have changed.")

    def hint(self) -> None:
        """Ask for a scan: something may have changed."""
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._timer is None:
            self._first = self._last
            self._timer = loop.call_later(self._quiet, self._due)

    def close(self) -> None:
        """Forget hints that are waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        loop = asyncio.get_running_loop()
        at = min(self._last + self._quiet, self._first + self._longest)
        # One timer for a burst, set again when it fires: a timer for each hint would cost more than the hint.
        if at > loop.time():
            self._timer = loop.call_at(at, self._due)
            return
        self._timer = None
        self.count.add()
        self._bus.publish(ScanWanted())
