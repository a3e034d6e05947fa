"""The running agent: its parts wired together, and one supervisor over them.

The start has this order: scan (a standby does so as well), take the instance lock, and only then bind sockets. If a
part fails, the process ends, because half an agent is worse than a restarted one. Snapshots reach the doors only
through the publisher: it decides the offer, writes CDI specs if rules use them, and then shows the lists, so that no
device is shown whose answer would name a missing spec.

At the end every part has ended before the lock is released. If a standby takes over, what still answers the kubelet
after that (``ostler.agent.handover``) writes nothing and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from node.events import EventBus, EventType
from node.inventory.identity import IdentityStore
from node.inventory.loop import Inventory, ScanDone, SnapshotPublished
from node.inventory.model import Snapshot, SnapshotJudged, SourceStatus
from node.inventory.source import Source
from node.lock import FolderLock
from node.offer import Offer
from node.opening import boot_id
from node.quiesce import Quiesce
from node.rules import makes_partitions
from node.sockets import PREFIX, is_socket, remove_dead
from node.values import replace
from ostler import __version__
from ostler.admin.status import Readiness, in_view_of, readiness, status_message
from ostler.agent.both_doors import AgentServices, BothDoors, ReadinessChanged
from ostler.agent.doors import remove_dead_driver_sockets
from ostler.agent.edges import Edges, Heartbeat
from ostler.agent.event_log import EventLog
from ostler.agent.handover import Handover
from ostler.agent.health_watch import HealthWatch
from ostler.agent.loading import KubeletFirst, load, tidy
from ostler.agent.quiescence import Quiescence
from ostler.agent.sources import has_layouts, read_profiles
from ostler.config.errors import ReloadFailed
from ostler.config.settings import EventsChoice, LogLevel, RegistrationChoice, Settings, changes, kept, rules_in_force
from ostler.metrics.counters import AgentMetrics

if TYPE_CHECKING:
    from ostler.admin.health import HealthView
    from ostler.admin.holds import HoldsView
    from ostler.agent.dra_service import DraService
    from ostler.agent.node_events import NodeEvents
    from ostler.agent.node_status import NodeStatus
    from ostler.metrics.gauges import Figures
    from protos.agent.v1alpha1 import agent_pb2

log = logging.getLogger("ostler.agent")


class Agent:
    """One ostler process; ``load`` reads the settings again for a reload and raises ``ReloadFailed``."""

    def __init__(
        self,
        settings: Settings,
        sources: Sequence[Source],
        load: Callable[[], Settings],
        edges: Edges | None = None,
    ) -> None:
        self._settings = settings
        self._hardware = sources
        self._load = load
        self._edges = edges or Edges()
        self._events = EventLog(self._edges)
        self._metrics = AgentMetrics(self._edges)
        self._bus = bus = EventBus(log)
        bus.subscribe(ScanDone, self._metrics.scans.scanned)
        bus.subscribe(SnapshotPublished, self._metrics.scans.published)
        quiesce = Quiesce(settings.state_dir / "quiesce.json", settings.roots.proc)
        self._inventory = Inventory(
            sources,
            IdentityStore(settings.state_dir / "identities.json", boot_id(settings.roots.proc)),
            bus,
            clocks=self._edges,
            max_interval=settings.inventory.max_interval,
            quiesce=quiesce,
        )
        self._quiescence = Quiescence(quiesce, self._inventory, self._events)
        self._inventory.override(settings.topology_overrides)
        self._first = KubeletFirst()
        self._health = HealthWatch(settings, sources, bus, self._edges, self._events)
        bus.subscribe(ReadinessChanged, self._readiness_changed)
        services = AgentServices(
            events=self._events,
            metrics=self._metrics,
            edges=self._edges,
            bus=bus,
            inventory=self._inventory,
            health=self._health,
            first=self._first,
        )
        self._doors = BothDoors(settings, sources, services)
        self._publisher = self._doors.publisher
        bus.subscribe(SnapshotJudged, self._publisher.on_judged)
        registers_by_registry = settings.kubelet.registration is not RegistrationChoice.REGISTER
        self.handover = Handover(
            settings.state_dir,
            self._doors.streams,
            relieves=registers_by_registry,
            kubelet=FolderLock(settings.kubelet.device_plugin_dir, settings.roots.proc),
        )
        self.node_events: NodeEvents | None = None
        self._node_status: NodeStatus | None = None
        self._active = asyncio.Event()
        self._serving = asyncio.Event()
        """Set once this instance has shown its devices."""
        self._reloading = asyncio.Lock()
        self._heartbeat = Heartbeat(self._edges, self._metrics.loop)
        self._last_status = ""

    async def run(self) -> None:
        """Run until cancelled; every socket is gone and every source closed afterwards.

        If ``handover`` has begun before, it ends when the kubelet has changed over, or at once if cancelled again.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inventory.run(), name="inventory")
                group.create_task(self._heartbeat.run(), name="heartbeat")
                group.create_task(tidy(self._first), name="tidy memory")
                group.create_task(self._quiescence.follow(self._active), name="quiesce")
                group.create_task(self._health.run(self._first, self._serving), name="health")
                if self._settings.log.level is LogLevel.DEBUG:
                    group.create_task(self._monitor_loop(), name="loop monitor")
                if self._settings.http is not None or self._settings.instance:
                    group.create_task(self._serve_http(), name="http")
                relieves = await self._become_active()
                group.create_task(self.handover.guard(), name="lock of the kubelet's folder")
                group.create_task(self._serve_admin(), name="admin")
                group.create_task(self._post_events(), name="kubernetes events")
                await self._inventory.first.wait()
                self._health.begin()
                self._publisher.submit(self._health.judged)
                await self._doors.serve(group, relieves=relieves)
                self._serving.set()
                self._bus.publish(ReadinessChanged())
                await self._doors.keep(group)
                group.create_task(self._write_node_status(), name="node status")
        finally:
            self._health.close()
            try:
                await self._inventory.close()
            finally:
                await self.handover.leave()

    @staticmethod
    async def _monitor_loop() -> None:
        await load("ostler.agent.loop_monitor")
        from ostler.agent.loop_monitor import LoopMonitor

        await LoopMonitor().run()

    def alive(self) -> bool:
        """Whether the event loop was seen lately; safe to call from any thread."""
        return self._heartbeat.alive()

    def readiness(self) -> Readiness:
        """Whether the agent is ready, and why or why not."""
        active = self._active.is_set()
        found = readiness(
            "active" if active else "standby",
            len(self._health.judged.devices),
            self._sources(),
            self._doors.waiting_for(),
            scanned=self._inventory.first.is_set(),
            offered=self._publisher.published.is_set(),
        )
        return replace(found, reasons=(*found.reasons, *self._hindrances()))

    def status(self) -> agent_pb2.GetStatusResponse:
        """The agent's status."""
        dra = self._doors.dra
        return status_message(
            self.readiness(),
            self._health.judged.generation,
            self._sources(),
            self._doors.resources(),
            self._events.recent,
            node_name=self._settings.node_name,
            quiesced=self._quiescence.begun,
            dra=None if dra is None else dra.summary(),
            holds=self._doors.holds_status(),
            health=self._health.summary(),
        )

    def _sources(self) -> tuple[SourceStatus, ...]:
        return (*in_view_of(self._health.judged.sources, self._settings.rules), *self._health.sources())

    def figures(self) -> Figures:
        """The values of a scrape besides the counters; safe to call from any thread."""
        from ostler.metrics.gauges import Figures

        found, (shown, offer), serving = self.readiness(), self._publisher.shown, self._serving.is_set()
        return Figures(
            role=found.role,
            ready=found.ready,
            quiesced=self._quiescence.begun,
            snapshot=self._inventory.snapshot,
            offer=offer,
            cdi_fault=shown.host.cdi_fault,
            scan_interval=self._inventory.max_interval,
            resources=self._doors.resources(),
            events=self._events.counts,
            live=self._health.live,
            node_events=self.node_events,
            dra=self._doors.dra_figures(),
            holds=self._doors.holds_figures() if serving else None,
            health=self._health.figures() if serving else None,
            mps=self._doors.mps_figures(),
        )

    def _hindrances(self) -> tuple[str, ...]:
        """Other problems, which do not keep the agent from being ready, because it serves devices."""
        events = () if self.node_events is None else self.node_events.reasons()
        unpublished = "" if self._doors.dra is None else self._doors.dra.unpublished()
        slices = (f"devices are not published through DRA: {unpublished}",) if unpublished else ()
        unkept = (
            (f"a restart would forget the health of devices: {self._health.unkept}",) if self._health.unkept else ()
        )
        allocatable = () if self._node_status is None else self._node_status.reasons()
        return (*slices, *events, *allocatable, *self._doors.hindrances(), *unkept)

    def dra(self) -> DraService | None:
        """The DRA door, None if nothing is offered or held through it."""
        return self._doors.dra

    def devices(self) -> tuple[Snapshot, Offer]:
        """The snapshot that is shown and the plugin door's offer for it."""
        snapshot, offer = self._publisher.shown
        return replace(snapshot, sources=in_view_of(snapshot.sources, self._settings.rules)), offer

    def noted(self, notes: Mapping[str, int]) -> None:
        """How many notes of each kind the configuration in force has; for metrics."""
        self._metrics.config.noted(notes)

    async def rescan(self) -> tuple[int, tuple[str, ...]]:
        """Scan now and ask the drivers for health; returns the generation after the scan and the changes."""
        self._health.look()
        return await self._quiescence.rescan()

    async def reload(self) -> tuple[str, ...]:
        """Read the configuration again and apply what may change while the agent runs; raises ``ReloadFailed``.

        Rules and the log's settings take effect. A setting that needs a restart keeps its value and is named.
        """
        async with self._reloading:  # One after the other, so that the later call applies the later file.
            self._edges.notifier.reloading()
            try:
                return await self._reload()
            finally:
                self._last_status = ""
                self._notify_systemd()

    async def _reload(self) -> tuple[str, ...]:
        try:
            new = await asyncio.to_thread(self._load)
        except ReloadFailed as error:
            self._metrics.config.failed()
            self._events.emit(EventType.WARNING, "ConfigRejected", str(error))
            raise
        wanted = replace(
            self._settings,
            rules=rules_in_force(self._settings, new),
            log=new.log,
            topology_overrides=new.topology_overrides,
            mig_config=new.mig_config,
            mig_layouts=new.mig_layouts,
            virtual_functions=new.virtual_functions,
            health=new.health,
        )
        await self._doors.load_for(wanted)
        # Nothing awaits from here on: the caller may go away, and half a configuration must not remain.
        old, self._settings = self._settings, wanted
        found = changes(old, new)
        if new.log != old.log:
            # Imported here: only a reload needs it.
            from ostler.logs import configure

            configure(new.log)
        if makes_partitions(new.rules) or has_layouts(new):
            read_profiles(self._hardware)
        self._doors.use(self._settings)
        self._health.use(self._settings)
        self._publisher.submit(self._health.judged)
        self._inventory.override(self._settings.topology_overrides)
        self._metrics.config.reloaded(self._edges.clock(), pending=len(kept(old, new)))
        log.info("configuration read again", extra={"changes": found})
        return found

    async def quiesce(self, reason: str) -> tuple[int, tuple[str, ...]]:
        """Release the driver; returns the changes, as ``rescan`` does. Raises ``DriverNotFree``."""
        return await self._quiescence.begin(reason)

    async def resume(self) -> tuple[int, tuple[str, ...]]:
        """Use the driver again; returns the changes of the first scan. Raises ``ResumeFailed``."""
        return await self._quiescence.end()

    async def _post_events(self) -> None:
        """Post events on the Node if the settings want it; otherwise returns at once."""
        await self._first.turn()
        if self._settings.kubernetes.events is not EventsChoice.OFF:
            await load("ostler.agent.node_events")
            from ostler.agent.node_events import node_events

            self.node_events = node_events(self._settings, self._events, self._doors.proofs)
            if self.node_events is not None:
                await self.node_events.run()

    async def _write_node_status(self) -> None:
        """Write the Node's allocatable if the settings want it; otherwise returns at once."""
        if not self._settings.kubernetes.patch_allocatable:
            return
        await self._first.turn()
        await load("ostler.agent.node_status")
        from ostler.agent.api_server import ApiEnvironment
        from ostler.agent.node_status import NodeStatus

        self._node_status = NodeStatus(self._settings, self._events, ApiEnvironment(os.environ))
        self._node_status.show(self._doors.resources())
        await self._node_status.run()

    async def _become_active(self) -> bool:
        """Wait for the instance lock; returns whether an earlier instance may still answer the kubelet."""
        lock = self.handover.lock
        relieves = not self.handover.try_acquire()
        if relieves:
            # Before the scan: a predecessor that ends meanwhile is then missed for less than a whole scan.
            self.handover.stand_by()
            log.info("standby: another instance is active", extra={"holder": self.handover.holder()})
            await self._inventory.first.wait()
            self._first.served()
            self._notify_systemd()
            await self._doors.load_ledger()
            await self.handover.wait()
        self._active.set()
        log.info("active", extra={"lock": str(lock.path), "version": __version__})
        folders = self._settings.kubelet.device_plugin_dir, self._settings.kubelet.registry_dir
        dead = [path for folder in folders for path in remove_dead(folder)]
        for path in (*dead, *remove_dead_driver_sockets(self._settings)):
            log.info("dead socket of a predecessor removed", extra={"path": str(path)})
        # An instance that left the lock to a standby that was killed still answers, and nobody waited for it.
        return relieves or any(is_socket(path) for folder in folders for path in folder.glob(f"{PREFIX}*.sock"))

    async def _serve_admin(self) -> None:
        await self._first.turn()
        await load("ostler.admin.serving")
        from ostler.admin.serving import serve_admin

        await serve_admin(self._settings.socket, self, self._events)

    async def _serve_http(self) -> None:
        await self._first.turn()
        await load("ostler.admin.probes")
        from ostler.admin.probes import Probes, pages

        await Probes(self._settings, pages(self, self._metrics, self._settings.instance), self._events).run()

    def holds_view(self) -> HoldsView | None:
        """Holds for people; None while this process does not serve the kubelet."""
        return self._doors.holds_view() if self._serving.is_set() else None

    def health_view(self) -> HealthView | None:
        """Health for people; None while this process does not serve the kubelet."""
        return self._health.view() if self._serving.is_set() else None

    def _readiness_changed(self, _: ReadinessChanged) -> None:
        if self._node_status is not None:
            self._node_status.show(self._doors.resources())
        if self._publisher.published.is_set() and not self._doors.waiting_for():
            self._first.served()
            self._doors.changed_over()
        self._notify_systemd()

    def _notify_systemd(self) -> None:
        """Send READY once the first scan is done (a late kubelet must not fail the unit), and a status line."""
        if not self._inventory.first.is_set():
            return
        words = self.readiness().line
        # If systemd did not accept it, the next change or heartbeat sends it again.
        if words != self._last_status and self._edges.notifier.send("READY=1", f"STATUS={words}"):
            self._last_status = words
