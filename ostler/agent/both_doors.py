"""Both doors of the process and what connects them: the publisher that shows devices, and the ledger of holds.

What the kubelet needs comes first. The ledger's modules are loaded while the kubelet answers the registration: loading
them takes as long as a tenth of the start before it. The first Allocate waits until they are there. The ledger is made
when the plugin door allocates its first device or has shown its list; the DRA door, which needs an API client, only if
a rule or an earlier process needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from node.events import EventBus
from node.inventory.loop import Inventory, SnapshotPublished
from node.inventory.source import Source
from node.offer import OfferedDevice
from node.partitions import PartitionsRemoved
from node.values import Value, value
from ostler.agent.doors import claims_left, claims_to_serve, kubelet_folders, open_books
from ostler.agent.edges import STUCK, Edges
from ostler.agent.event_log import EventLog
from ostler.agent.handover import Streams
from ostler.agent.health_watch import HealthWatch
from ostler.agent.loading import KubeletFirst, load
from ostler.agent.process_mps import ProcessMps
from ostler.agent.publisher import Publisher
from ostler.agent.sources import compute_processes, dividing_modules
from ostler.config.settings import Settings
from ostler.metrics.counters import AgentMetrics
from plugin.door import KubeletFolderChanged, PluginDoor, ResourceStatus
from plugin.listing import StreamsChanged
from plugin.registration import RegistrationBegun
from plugin.servicer import renderer

if TYPE_CHECKING:
    from driver.door.registration import RegistrationChanged
    from node.ledger.bookkeeping import Bookkeeping
    from node.mps.reports import MpsMetrics
    from ostler.admin.holds import HoldsView
    from ostler.agent.api_server import RecentProofs
    from ostler.agent.divider import HardwareDivider
    from ostler.agent.dra_service import DraService
    from ostler.agent.pod_records import PodRecords
    from ostler.metrics.dra import DraFigures
    from ostler.metrics.gauges import HoldsFigures
    from plugin.records import RecordBook
    from protos.agent.v1alpha1 import agent_pb2


LEDGER = ("node.ledger.bookkeeping", "node.inventory.nvidia.nvml_processes")
"""Modules that every Allocate needs."""
READING = ("node.kubelet.checkpoint", "protos.podresources.v1.api_pb2_grpc")
"""Modules for the kubelet's record and answers; an Allocate that needs one earlier imports it itself."""


@value
class ReadinessChanged(Value):
    """A door may have become ready, or may no longer be."""


@value
class AgentServices(Value):
    """The services of the process that the doors use.

    ``first`` delays work that may wait until the kubelet is served. The doors publish ``ReadinessChanged`` on ``bus``.
    """

    events: EventLog
    metrics: AgentMetrics
    edges: Edges
    bus: EventBus
    inventory: Inventory
    health: HealthWatch
    first: KubeletFirst

    def alive(self) -> bool:
        """Whether the inventory still scans the devices."""
        return not self.inventory.hangs(STUCK)


class BothDoors:
    """The plugin door and, once they are needed, the ledger and the DRA door; for the event loop only."""

    def __init__(self, settings: Settings, sources: Sequence[Source], services: AgentServices) -> None:
        self._settings = settings
        self._sources = sources
        self._services = services
        self._records = _record_book(settings)
        self._plugin = PluginDoor(
            kubelet_folders(settings),
            renderer,
            services.edges,
            events=services.events,
            observer=services.metrics.plugin,
            admission=self,
            records=self._records,
        )
        self._pod_records: PodRecords | None = None
        self._plugin.bus.subscribe(StreamsChanged, self._streams_changed)
        self._plugin.bus.subscribe(KubeletFolderChanged, self._kubelet_changed)
        self._plugin.bus.subscribe(RegistrationBegun, self._registration_begun)
        self._registering = asyncio.Event()
        self._is_loaded = False
        """Whether the ledger's modules are loaded."""
        self._loading: asyncio.Task[None] | None = None
        self._books: Bookkeeping | None = None
        self.dra: DraService | None = None
        """The DRA door, None if nothing is offered or held through it."""
        self.publisher = Publisher(settings, self._plugin, services.events)
        self._opens_dra = claims_to_serve(settings)
        """Whether the DRA door is open or about to be."""
        self._relieves = False
        """Whether an earlier instance may still answer the kubelet."""
        self._divider: HardwareDivider | None = None
        self._group: asyncio.TaskGroup | None = None
        self._mps = ProcessMps(sources, self.publisher, clocks=services.edges, events=services.events, bus=services.bus)

    async def serve(self, group: asyncio.TaskGroup, *, relieves: bool) -> None:
        """Show submitted snapshots from now on, by tasks of ``group``; returns when devices are shown.

        ``relieves``: an earlier instance may still answer the kubelet. If claims have had devices since before, this
        does not register with the kubelet until the ledger has them: pods may be waiting for one of them. If the disk
        does not answer, pods then wait, and none gets a device of a claim.
        """
        self._relieves = relieves
        group.create_task(self._load_in_time(), name="load the ledger")
        await self._mps.load(self._settings)
        self._mps.open(self._settings)
        if claims_left(self._settings):
            self._group = group
            await self.load_ledger()
            await self._load_dra()
            self._open_dra()
            if self.dra is not None:
                await self.dra.recovered()
        group.create_task(self.publisher.run(), name="publisher")
        group.create_task(self._plugin.run(), name="plugin door")
        await self.publisher.published.wait()

    async def keep(self, group: asyncio.TaskGroup) -> None:
        """Keep the ledger true from now on, and serve claims if the rules need it, by tasks of ``group``."""
        self._group = group
        await self._load_dra()
        if self._opens_dra or self._mps.is_to_run or dividing_modules(self._settings):
            await self.load_ledger()
        self._open_dra()
        self._run_mps()
        group.create_task(self._keep_books(), name="bookkeeping")
        if self._records is not None:
            group.create_task(self._follow_records(self._records), name="records of pods")
        self._divide_hardware()

    async def load_ledger(self) -> None:
        """Return when everything is loaded that every Allocate needs."""
        if not self._is_loaded:
            # One thread for all who wait: a second one would wait for the first at every module.
            self._loading = self._loading or asyncio.create_task(load(*LEDGER), name="load the ledger's modules")
            await asyncio.shield(self._loading)
            self._is_loaded = True

    async def load_for(self, settings: Settings) -> None:
        """Load what these settings need, so that ``use`` does not have to wait."""
        if self.dra is None and claims_to_serve(settings):
            await load("ostler.agent.dra_service", "ostler.agent.divider", "kube.reflector")
        await self._mps.load(settings)
        if modules := dividing_modules(settings):
            await load(*modules)

    def use(self, settings: Settings) -> None:
        """Follow other rules; the caller submits a snapshot to the publisher afterwards."""
        self._settings = settings
        self._opens_dra = self.dra is not None or claims_to_serve(settings)
        self.publisher.use(settings)
        self._open_dra()
        self._mps.open(settings)
        self._run_mps()
        self._divide_hardware()

    def changed_over(self) -> None:
        """Note that the kubelet follows the lists of this instance."""
        if self._books is not None:
            self._books.changed_over()

    @cached_property
    def proofs(self) -> RecentProofs:
        """The proof that the Node is this machine, for all parts that need it; loaded with the first of them."""
        from ostler.agent.api_server import RecentProofs

        return RecentProofs()

    def streams(self) -> tuple[Streams, ...]:
        """The doors that are open."""
        return (self._plugin,) if self.dra is None else (self._plugin, self.dra)

    def waiting_for(self) -> tuple[str, ...]:
        """Why the doors are not ready, one sentence each."""
        if self.dra is not None:
            return (*self._plugin.waiting_for(), *self.dra.waiting_for())
        return (*self._plugin.waiting_for(), *(("the DRA door is being opened",) if self._opens_dra else ()))

    def resources(self) -> tuple[ResourceStatus, ...]:
        """The resources that the plugin door shows, by name."""
        return self._plugin.status()

    def holds_view(self) -> HoldsView:
        """Holds for people."""
        from ostler.admin.holds import HoldsView

        return HoldsView(self._opened_books(), self.publisher, self.dra, self._settings.rules)

    def holds_status(self) -> agent_pb2.HoldsStatus | None:
        """Holds in one line; None until the ledger is needed."""
        return None if self._books is None else self.holds_view().report().status

    def holds_figures(self) -> HoldsFigures | None:
        """Holds for metrics; None until the ledger is needed."""
        return None if self._books is None else self.holds_view().figures()

    def dra_figures(self) -> DraFigures | None:
        """The DRA door's values for metrics."""
        return None if self.dra is None else self.dra.figures()

    def hindrances(self) -> tuple[str, ...]:
        """Why records of pods are not known or not kept, for people."""
        return () if self._pod_records is None else self._pod_records.reasons()

    def mps_figures(self) -> MpsMetrics | None:
        """The counters of MPS daemons, for metrics; None until MPS is needed."""
        return self._mps.figures

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> Awaitable[None] | None:
        """See ``plugin.admission.Admission``."""
        if not self._is_loaded:
            return self._doubted_later(resource, devices)
        return self._mps.doubted(self._opened_books().doubted(resource, devices), resource, devices)

    def unlisted(self) -> Awaitable[None] | None:
        """See ``plugin.admission.Admission``."""
        return self._opened_books().unlisted() if self._is_loaded else self._unlisted_later()

    def take(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """See ``plugin.admission.Admission``."""
        self._opened_books().allocate(resource, devices)

    async def _doubted_later(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        await self.load_ledger()
        doubt = self.doubted(resource, devices)
        if doubt is not None:
            await doubt

    async def _unlisted_later(self) -> None:
        await self.load_ledger()
        unlisted = self.unlisted()
        if unlisted is not None:
            await unlisted

    async def _load_in_time(self) -> None:
        await self._registering.wait()
        # The call of the kubelet that was just made is sent first.
        await asyncio.sleep(0)
        await self.load_ledger()

    def _registration_begun(self, _: RegistrationBegun) -> None:
        self._registering.set()

    def _streams_changed(self, _: StreamsChanged | RegistrationChanged) -> None:
        self._services.bus.publish(ReadinessChanged())

    def _kubelet_changed(self, _: KubeletFolderChanged) -> None:
        if self._books is not None:
            self._books.kubelet_changed()

    def _opened_books(self) -> Bookkeeping:
        """The ledger; made when it is first needed, which is after the registration with the kubelet."""
        if self._books is None:
            from node.ledger.events import HoldsChanged, OfferChanged
            from node.ledger.reader import Reading

            services = self._services
            processes = compute_processes(self._sources, self._settings.roots.proc)
            self._books = open_books(self._settings, services.edges, processes, services.events, services.metrics.holds)
            self.publisher.follow_ledger(self._books)
            self._books.bus.subscribe(HoldsChanged, self.publisher.on_holds_changed)
            self._books.bus.subscribe(OfferChanged, self.publisher.on_holds_changed)
            self._books.bus.subscribe(Reading, self._plugin.on_reading)
            self._books.begin(relieves=self._relieves)
            # Before the Allocate that may have asked for it: overlapping devices must be known.
            self._books.place(self.publisher.shown[0], self._settings.rules)
            self.publisher.submit(self._services.health.judged)
        return self._books

    async def _keep_books(self) -> None:
        if self.dra is None:
            await self._services.first.turn()
        await self.load_ledger()
        await load(*READING)
        await self._opened_books().run()

    async def _follow_records(self, book: RecordBook) -> None:
        await self._services.first.turn()
        await load("ostler.agent.pod_records", "ostler.agent.api_server", "driver.resource_api.async_client")
        from ostler.agent.pod_records import pod_records

        services = self._services
        self._pod_records = pod_records(
            self._settings,
            book,
            self._opened_books().bus,
            clocks=services.edges,
            events=services.events,
            outcomes=services.metrics.holds.records,
        )
        await self._pod_records.run()

    async def _load_dra(self) -> None:
        self._opens_dra = self.dra is not None or claims_to_serve(self._settings)
        await self.load_for(self._settings)

    def _run_mps(self) -> None:
        if self._group is not None and self._mps.is_to_run:
            self._opened_books().read_often()
            self._mps.run(self._group)

    def _open_dra(self) -> None:
        """Open the DRA door if that was announced and it is not open; it closes only with the process."""
        if self._group is None or self.dra is not None or not self._opens_dra:
            return
        # Imported here: a node without claims does not pay for it.
        from driver.door.registration import RegistrationChanged
        from ostler.agent.dra_parts import DraParts, PartitionMaking, sharing_tools
        from ostler.agent.dra_service import DraService

        services, books = self._services, self._opened_books()
        books.read_often()
        parts = DraParts(
            self._settings,
            services.edges,
            books,
            services.events,
            is_alive=services.alive,
            partitions=PartitionMaking(self._hardware_divider().maker, services.inventory.rescan),
            sharing=sharing_tools(self._settings, self._sources, self._mps),
            links=services.health,
            proofs=self.proofs,
        )
        self.dra = DraService(self._settings.dra.driver_name, parts, books)
        self.publisher.open_dra(self.dra)
        services.bus.subscribe(SnapshotPublished, lambda _: parts.interfaces.claims.on_inventory_changed())
        books.bus.subscribe(RegistrationChanged, self._streams_changed)
        books.bus.subscribe(PartitionsRemoved, services.inventory.removed)
        self.publisher.submit(services.health.judged)
        self._group.create_task(self.dra.run(services.first), name="DRA door")

    def _divide_hardware(self) -> None:
        """Divide GPUs and NICs from now on as the settings ask for it, if they do."""
        if self._divider is not None:
            self._divider.use(self._settings)
        if self._group is not None and dividing_modules(self._settings):
            self._hardware_divider().run(self._group)

    def _hardware_divider(self) -> HardwareDivider:
        if self._divider is None:
            # Loaded by now, in a thread.
            from ostler.agent.divider import HardwareDivider

            services = self._services
            self._divider = HardwareDivider(
                self._settings,
                self._sources,
                self._opened_books(),
                services.inventory,
                self.publisher,
                bus=services.bus,
                events=services.events,
                clocks=services.edges,
            )
        return self._divider


def _record_book(settings: Settings) -> RecordBook | None:
    """The devices that schedulers record for pods; None if the settings do not ask for them."""
    if not settings.kubernetes.recorded_devices:
        return None
    # Imported here: a node without a scheduler that records devices does not pay for it.
    from plugin.records import RecordBook

    return RecordBook()
