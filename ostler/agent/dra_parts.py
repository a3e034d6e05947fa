"""Makes the parts of the DRA door from the settings: sockets, claims, slices, claim status, and one API client for all.

The kubelet comes first: the client library is loaded only when the sockets exist, and then in threads of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.contracts import ClaimOptions
from driver.claims.partitions import ClaimPartitions
from driver.claims.record import ClaimRecord
from driver.claims.service import ClaimService
from driver.claims.sharing import ClaimSharing, SharingTools
from driver.door.door import DraDoor
from driver.door.registration import DoorOptions
from driver.interfaces.observers import PodLinks
from driver.metadata.files import MetadataFiles
from driver.metadata.reports import InterfaceReports
from driver.node_watch.evictions import PodEvictions
from driver.node_watch.node_claims import NodeClaims
from driver.node_watch.node_doors import NodeDoorsKeeper
from driver.parameters.decoding import pairs
from driver.publishing.publisher import SlicePublisher, controller_maker
from driver.publishing.shown import ShownDevices
from driver.publishing.withdrawal import Withdrawal
from driver.resource_api.async_client import AsyncResourceApi
from node.events import EventRecorder, EventType
from node.inventory.nvidia.time_slices import TimeSlicer
from node.inventory.source import Source
from node.ledger.bookkeeping import Bookkeeping
from node.opening import boot_id
from node.partitions import PartitionMaker
from node.values import Value, value
from ostler.agent.api_server import RecentProofs, node_check, resource_api
from ostler.agent.edges import Edges
from ostler.agent.event_log import EventsFromThreads, call_on
from ostler.agent.pod_interfaces import PodInterfaces, guard_folder
from ostler.agent.sources import nvml_sessions
from ostler.config.settings import Settings
from ostler.metrics.dra import DraMetrics

if TYPE_CHECKING:
    from ostler.agent.process_mps import ProcessMps

log = logging.getLogger("ostler.dra")

CALLS = 32
"""Requests to the API server at once; the slices' writer and its watch have one connection more each."""


@value
class PartitionMaking(Value):
    """The maker of partitions of GPUs, None if there is none, and the function that has devices scanned again."""

    maker: PartitionMaker | None
    rescan: Callable[[frozenset[str]], Awaitable[object]]


async def _no_rescan(_: frozenset[str]) -> None:
    """Nothing to scan for: no partition is ever made."""


NO_PARTITIONS = PartitionMaking(None, _no_rescan)
NO_SHARING = SharingTools()


def sharing_tools(settings: Settings, sources: Iterable[Source], mps: ProcessMps) -> SharingTools:
    """The tools of this node for sharing the GPUs of claims."""
    if nvml_sessions(sources) is None:
        return SharingTools(shares=mps)
    return SharingTools(TimeSlicer(settings.nvidia.driver_root_mount), lambda: mps.claim_daemons(settings), mps)


class DraParts:
    """Every part of the DRA door, complete but not running.

    ``is_alive``: whether the inventory still scans its devices. ``partitions``: how partitions of GPUs are made;
    ``sharing``: how the GPUs of claims are shared; ``links``: follows the links of interfaces in pods.
    ``proofs``: of the Node, by other parts of the process. The parts
    publish events on the bus of ``books``: ``OfferChanged``, ``PodsChanged``, ``ReservationsChanged``,
    ``RegistrationChanged``.
    """

    def __init__(
        self,
        settings: Settings,
        edges: Edges,
        books: Bookkeeping,
        events: EventRecorder,
        *,
        is_alive: Callable[[], bool],
        partitions: PartitionMaking = NO_PARTITIONS,
        sharing: SharingTools = NO_SHARING,
        links: PodLinks | None = None,
        proofs: RecentProofs | None = None,
    ) -> None:
        driver, node_name, bus = settings.dra.driver_name, settings.node_name, books.bus
        self._settings, self._edges, self._books, self._events = settings, edges, books, events
        self._check = check = node_check(settings)
        self.metrics = DraMetrics(books.observer, edges)
        self.api = AsyncResourceApi(
            lambda: resource_api(settings, edges.random, connections=CALLS + 2, pairs=pairs, proofs=proofs),
            threads=CALLS,
        )
        self.shown = self._shown_before()
        self.status = ClaimStatusWriter(driver, self.api, events=events, clocks=edges)
        self.partitions = ClaimPartitions(partitions.maker, partitions.rescan, self.metrics.claims, edges, bus)
        self.sharing = ClaimSharing(sharing, settings.state_dir, boot_id(settings.roots.proc))
        self.metadata = MetadataFiles(settings.dra.plugins_dir / driver, settings.cdi.directory, driver)
        self.node_claims = NodeClaims(
            self.api, driver, node_name, clocks=edges, check=check, bus=bus, prepared=self._prepared_for
        )
        self.interfaces = self._pod_interfaces(links)
        self.claims = self._claim_service()
        self.evictions = PodEvictions(self.api, events=events, clocks=edges)
        self.doors = NodeDoorsKeeper(
            self.api,
            driver,
            node_name,
            settings.state_dir,
            events=events,
            clocks=edges,
            by_node=settings.kubernetes.door_by_node,
            check=check,
            bus=bus,
        )
        self.door = self._door(is_alive)
        self.slices = self._slice_publisher()
        self.withdrawal = Withdrawal(
            self.shown,
            self.node_claims.claims_naming,
            free=self.slices.free,
            taken=self.claims.taken,
            events=events,
            bus=bus,
            clocks=edges,
        )

    def _shown_before(self) -> ShownDevices:
        shown = ShownDevices(self._settings.state_dir)
        problem = shown.load()
        if problem:
            self._events.emit(EventType.WARNING, "ShownDevicesUnknown", problem)
        return shown

    def _prepared_for(self, key: tuple[str, str], pods: frozenset[str]) -> ClaimRecord | None:
        return self.claims.prepared_for(key, pods)

    def _pod_interfaces(self, links: PodLinks | None) -> PodInterfaces:
        events, observer = self._events, self.metrics.claims
        return PodInterfaces(
            self._settings,
            self._edges,
            events=events,
            ledger=self._books.ledger,
            reporter=InterfaceReports(self.metadata, self.status, events=events, observer=observer),
            observer=self.metrics.interfaces,
            on_host_network=self.node_claims.on_host_network,
            links=links,
        )

    def _claim_service(self) -> ClaimService:
        settings, books = self._settings, self._books
        options = ClaimOptions(
            settings.dra.driver_name,
            settings.node_name,
            settings.state_dir,
            settings.cdi.directory,
            settings.kubelet.registry_dir.parent,
            metadata_versions=settings.dra.metadata_versions,
            metadata_required=settings.dra.metadata_required,
            peers=settings.dra.peers,
            mps_root=settings.nvidia.mps_root,
            guard_dir=guard_folder(settings),
        )
        return ClaimService(
            options,
            self.api,
            events=self._events,
            observer=self.metrics.claims,
            boot=boot_id(settings.roots.proc),
            clocks=self._edges,
            ledger=books.ledger,
            partitions=self.partitions,
            sharing=self.sharing,
            metadata=self.metadata,
            interfaces=self.interfaces.claims,
            is_known=lambda: books.keeper.known,
        )

    def _door(self, is_alive: Callable[[], bool]) -> DraDoor:
        dra, kubelet = self._settings.dra, self._settings.kubelet
        return DraDoor(
            DoorOptions(dra.driver_name, self._settings.node_name, dra.plugins_dir, kubelet.registry_dir),
            self.claims,
            events=self._events,
            observer=self.metrics.door,
            clocks=self._edges,
            bus=self._books.bus,
            is_alive=is_alive,
            reporter=self.status,
        )

    def _slice_publisher(self) -> SlicePublisher:
        """The publisher, whose threads report their findings on the running loop."""
        loop, dra, node_name = asyncio.get_running_loop(), self._settings.dra, self._settings.node_name
        return SlicePublisher(
            node_name,
            controller_maker(self.api.made, dra.driver_name, node_name, self._edges, check=self._check),
            events=EventsFromThreads(self._events, loop),
            peers=dra.peers,
            clocks=self._edges,
            shown=self.shown,
            on_dropped=lambda: call_on(loop, self.doors.features.doubt),
            gives_way=lambda: self.claims.is_making,
        )
