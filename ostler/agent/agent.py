"""The running agent: its parts wired together, and one supervisor over them.

Order at the start: scan (a standby does it too), take the instance lock, then and only then bind sockets. A part that
fails takes the process with it, because half an agent is worse than a restarted one. The publisher is the only way from
a snapshot to the doors: it decides the offer, writes CDI specs where rules use them, and shows the lists afterwards, so
that no device is shown whose answer would name a spec that is not there yet.

At the end every part has ended before the lock falls free. What then still answers the kubelet, where a standby takes
over (``ostler.agent.handover``), writes nothing and decides nothing.
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
from ostler.agent.eventlog import EventLog
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
    from ostler.admin.probes import Probes
    from ostler.agent.dra_service import DraService
    from ostler.agent.node_events import NodeEvents
    from ostler.agent.node_status import NodeStatus
    from ostler.metrics.figures import Figures
    from protos.agent.v1alpha1 import agent_pb2

log = logging.getLogger("ostler.agent")

FOR_ALLOCATE = ("node.ledger.bookkeeping", "node.kubelet.checkpoint", "protos.podresources.v1.api_pb2_grpc")
"""Modules that any Allocate may need: the ledger, and the kubelet's record and answers."""


class Agent:
    """One process' worth of ostler; ``load`` reads the settings again for a reload and raises ``ReloadFailed``."""

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
        self._events = EventLog(self._edges.clock)
        self._metrics = AgentMetrics(self._edges.clock)
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
        bus.subscribe(SnapshotJudged, self._judged)
        bus.subscribe(ReadinessChanged, self._readiness_changed)
        around = AgentServices(
            events=self._events,
            metrics=self._metrics,
            edges=self._edges,
            bus=bus,
            inventory=self._inventory,
            health=self._health,
            first=self._first,
        )
        self._doors = BothDoors(settings, sources, around)
        self._publisher = self._doors.publisher
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
        self._heartbeat = Heartbeat(self._edges.notifier, self._metrics.loop, self._edges.clock, self._edges.monotonic)
        self._told = ""

    async def run(self) -> None:
        """Run until cancelled; every socket is gone and every source closed afterwards.

        With ``handover`` begun before, it ends when the kubelet has changed over; cancelled again, at once.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inventory.run(), name="inventory")
                # The first Allocate may follow the device list at once; this loads while the hardware is scanned.
                ledger = group.create_task(load(*FOR_ALLOCATE), name="load the ledger")
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
                await ledger
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
        """Whether the event loop was seen lately; for any thread."""
        return self._heartbeat.alive()

    def readiness(self) -> Readiness:
        """Whether the agent is ready, and why (not)."""
        active = self._active.is_set()
        role = "active" if active else "standby"
        ready, reasons = readiness(
            self._inventory.first.is_set() and (not active or self._publisher.published.is_set()),
            role,
            len(self._health.judged.devices),
            self._sources(),
            self._doors.waiting_for(),
        )
        return Readiness(role, ready, (*reasons, *self._hindrances()))

    def status(self) -> agent_pb2.GetStatusResponse:
        """How the agent is."""
        second = self._doors.second
        return status_message(
            self.readiness(),
            self._health.judged.generation,
            self._sources(),
            self._doors.resources(),
            self._events.recent,
            node_name=self._settings.node_name,
            quiesced=self._quiescence.begun,
            dra=None if second is None else second.summary(),
            holds=self._doors.holds_status(),
            health=self._health.summary(),
        )

    def _sources(self) -> tuple[SourceStatus, ...]:
        return (*in_view_of(self._health.judged.sources, self._settings.rules), *self._health.sources())

    def figures(self) -> Figures:
        """What a scrape shows besides the counters; for any thread."""
        from ostler.metrics.figures import Figures

        found, (shown, offer), serving = self.readiness(), self._doors.shown(), self._serving.is_set()
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
        """What else is amiss: worth knowing, and no reason against readiness, since devices are served."""
        events = () if self.node_events is None else self.node_events.reasons()
        unpublished = "" if self._doors.second is None else self._doors.second.unpublished()
        slices = (f"devices are not published through DRA: {unpublished}",) if unpublished else ()
        unkept = (f"a restart would forget how devices are: {self._health.unkept}",) if self._health.unkept else ()
        allocatable = () if self._node_status is None else self._node_status.reasons()
        return (*slices, *events, *allocatable, *unkept)

    def dra(self) -> DraService | None:
        """The DRA door, None where nothing is offered or held through it."""
        return self._doors.second

    def devices(self) -> tuple[Snapshot, Offer]:
        """The snapshot that is shown and what the plugin door makes of it."""
        snapshot, offer = self._doors.shown()
        return replace(snapshot, sources=in_view_of(snapshot.sources, self._settings.rules)), offer

    def noted(self, notes: Mapping[str, int]) -> None:
        """How many notes of each kind the configuration in force has; for metrics."""
        self._metrics.config.noted(notes)

    async def rescan(self) -> tuple[int, tuple[str, ...]]:
        """Scan now, and have the drivers asked how devices are; the generation after the scan and what changed."""
        self._health.look()
        return await self._quiescence.rescan()

    async def reload(self) -> tuple[str, ...]:
        """Read the configuration again and act on what may change while running; raises ``ReloadFailed``.

        Rules and the log's settings take effect; what needs a restart is kept as it is and named.
        """
        async with self._reloading:  # One after the other: the later call must have the later file.
            self._edges.notifier.reloading()
            try:
                return await self._reload()
            finally:
                self._told = ""
                self._tell_systemd()

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
            health=new.health,
        )
        await self._doors.load_for(wanted)
        # From here on nothing waits: whoever asked may go, and half of a configuration is none.
        old, self._settings = self._settings, wanted
        found = changes(old, new)
        if new.log != old.log:
            # Here and not above: only a reload needs it.
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
        """Let go of the driver; what changed, as for ``rescan``. Raises ``DriverNotFree``."""
        return await self._quiescence.begin(reason)

    async def resume(self) -> tuple[int, tuple[str, ...]]:
        """Use the driver again; what the first scan changed. Raises ``ResumeFailed``."""
        return await self._quiescence.end()

    async def _post_events(self) -> None:
        """Events on the Node, where the API server is to be spoken to; ends at once elsewhere."""
        await self._first.turn()
        if self._settings.kubernetes.events is not EventsChoice.OFF:
            await load("ostler.agent.node_events")
            from ostler.agent.node_events import node_events

            self.node_events = node_events(self._settings, self._events)
            if self.node_events is not None:
                await self.node_events.run()

    async def _write_node_status(self) -> None:
        """The Node's allocatable, where the agent is to write it; ends at once elsewhere."""
        if not self._settings.kubernetes.patch_allocatable:
            return
        await self._first.turn()
        await load("ostler.agent.node_status")
        from ostler.agent.node_events import ApiEnvironment as Outside
        from ostler.agent.node_status import NodeStatus

        self._node_status = NodeStatus(self._settings, self._events, Outside(os.environ))
        self._node_status.show(self._doors.resources())
        await self._node_status.run()

    async def _become_active(self) -> bool:
        """Wait for the instance lock; whether an instance before this one may still answer the kubelet."""
        lock = self.handover.lock
        relieves = not self.handover.try_acquire()
        if relieves:
            # Before the scan: what it misses of a predecessor that ends meanwhile is less than the whole of it.
            self.handover.stand_by()
            log.info("standby: another instance is active", extra={"holder": self.handover.holder()})
            await self._inventory.first.wait()
            self._first.served()
            self._tell_systemd()
            await self.handover.wait()
        self._active.set()
        log.info("active", extra={"lock": str(lock.path), "version": __version__})
        folders = self._settings.kubelet.device_plugin_dir, self._settings.kubelet.registry_dir
        dead = [path for folder in folders for path in remove_dead(folder)]
        for path in (*dead, *remove_dead_driver_sockets(self._settings)):
            log.info("dead socket of a predecessor removed", extra={"path": str(path)})
        # Whoever left the lock to a standby that was killed still answers, and was not waited for.
        return relieves or any(is_socket(path) for folder in folders for path in folder.glob(f"{PREFIX}*.sock"))

    def _judged(self, judged: SnapshotJudged) -> None:
        self._publisher.submit(judged.snapshot)

    async def _serve_admin(self) -> None:
        await self._first.turn()
        await load("ostler.admin.service")
        from ostler.admin.service import serve_admin

        await serve_admin(self._settings.socket, self, self._events)

    async def _serve_http(self) -> None:
        await self._first.turn()
        await (await asyncio.to_thread(self._probes)).run()

    def _probes(self) -> Probes:
        from ostler.admin.probes import Probes, pages

        return Probes(self._settings, pages(self, self._metrics, self._settings.instance), self._events)

    def holds_view(self) -> HoldsView | None:
        """Who has which device; None while this process does not serve the kubelet."""
        return self._doors.holds_view() if self._serving.is_set() else None

    def health_view(self) -> HealthView | None:
        """How devices are; None while this process does not serve the kubelet."""
        return self._health.view() if self._serving.is_set() else None

    def _readiness_changed(self, _: ReadinessChanged) -> None:
        if self._node_status is not None:
            self._node_status.show(self._doors.resources())
        if self._publisher.published.is_set() and not self._doors.waiting_for():
            self._first.served()
            self._doors.changed_over()
        self._tell_systemd()

    def _tell_systemd(self) -> None:
        """READY once the first scan is done (a kubelet that is late must not fail the unit), and a line of status."""
        if not self._inventory.first.is_set():
            return
        words = self.readiness().line
        # What systemd did not take is said again with the next change.
        if words != self._told and self._edges.notifier.send("READY=1", f"STATUS={words}"):
            self._told = words
