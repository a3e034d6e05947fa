"""Door one: every resource of the present offer, each with its list, its socket and its registration.

Resources come and go with the offer while the process runs. A resource whose devices have all gone stays registered
with an empty list, because the kubelet would otherwise keep its last devices for five minutes; it is dropped only when
the rules no longer know it.

The end has two halves. Once ``run`` is cancelled, this door checks, decides and shows nothing any more. If
``hand_over`` was called before, it still answers the sockets that the kubelet found by its registry, from memory and
for the devices of the last list, until the kubelet has changed over to a successor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from node.clocks import Clocks
from node.directories import DirectoryWatcher, Inotify, KernelInotify
from node.events import EventBus, EventRecorder, EventType
from node.offer import Offer, OfferedDevice, ResourceOffer
from node.rules import Rule
from node.topology.model import Topology
from node.values import Record, Value, record, value
from plugin.admission import Admission, AdmitAll
from plugin.gpu_nic_pairing import RecentGrants
from plugin.kubelet import KubeletAnswered, KubeletFolders, KubeletView, QuestionPace
from plugin.listing import DeviceListing, ListTooLarge, StreamsChanged
from plugin.observer import PluginObserver
from plugin.preferred import PlacementMap
from plugin.registrar import Registrar
from plugin.registration import PluginRegistrationState, PluginRegistrationStatus, Predecessors
from plugin.servicer import DevicePluginServicer, Render

if TYPE_CHECKING:
    from node.ledger.reader import Reading
    from plugin.records import RecordBook

log = logging.getLogger("ostler.plugin")


@value
class ResourceStatus(Value):
    """A resource for people; ``problem`` says why the newest list is not shown."""

    name: str
    devices: int
    healthy: int
    streams: int
    registration: PluginRegistrationStatus
    problem: str = ""


@record
class _Resource(Record):
    listing: DeviceListing
    servicer: DevicePluginServicer
    registrar: Registrar
    problem: str = ""
    task: asyncio.Task[None] | None = None


@value
class KubeletFolderChanged(Value):
    """Something in the kubelet's folders has changed; never what."""


class PluginDoor:
    """Serves the offers handed to ``apply`` for as long as ``run`` runs.

    ``render_for`` returns, for a resource, the function that makes a container's answer. ``admission`` enters the
    devices of an Allocate in the ledger, or refuses them. ``records``: devices that a scheduler has recorded for pods,
    which are preferred; None if the agent follows no records. ``bus`` publishes ``StreamsChanged`` and
    ``KubeletFolderChanged``.
    """

    def __init__(
        self,
        folders: KubeletFolders,
        render_for: Callable[[ResourceOffer], Render],
        clocks: Clocks,
        *,
        events: EventRecorder,
        observer: PluginObserver,
        open_watch: Callable[[], Inotify] = KernelInotify,
        pace: QuestionPace | None = None,
        admission: Admission = AdmitAll(),  # noqa: B008 - it has no state
        records: RecordBook | None = None,
    ) -> None:
        self._records = records
        self.bus = EventBus()
        self.bus.subscribe(StreamsChanged, self._streams_changed)
        self.bus.subscribe(KubeletAnswered, self._kubelet_answered)
        self._admission = admission
        self._folders = folders
        self._render_for = render_for
        self._events = events
        self._observer = observer
        self._clocks = clocks
        self._open_watch = open_watch
        self._pace = pace or QuestionPace()
        self._view = KubeletView(folders.pod_resources, self.bus, clocks=clocks, pace=self._pace)
        self._recent = RecentGrants(clocks)
        self._placement = PlacementMap()
        self._resources: dict[str, _Resource] = {}
        self._predecessors = Predecessors(folders.registry)
        self._group: asyncio.TaskGroup | None = None

    def apply(self, offer: Offer, topology: Topology | None = None, *, forget_missing: bool = False) -> None:
        """Show this offer, and prefer devices by this topology of the same snapshot (none: by NUMA node alone).

        Resources that the offer lacks show no devices, or are dropped if ``forget_missing``.
        """
        if topology is None or topology != self._placement.topology:
            self._placement = PlacementMap(topology)
        for resource in offer.resources:
            self._show(resource)
        offered = {resource.resource for resource in offer.resources}
        for name in sorted(self._resources.keys() - offered):
            if forget_missing:
                self._drop(name)
            else:
                self._update(name, self._resources[name], ())
        self.bus.publish(StreamsChanged())

    def on_reading(self, reading: Reading) -> None:
        """Take the devices that the kubelet counts as healthy; see ``KubeletView.take_answer``."""
        self._view.take_answer(reading.began, reading.allocatable)

    async def run(self) -> None:
        """Serve until cancelled; sockets are gone afterwards, unless handed over. A failing part ends all of it."""
        # Before our own first socket: the present ones belong to a process that has handed over to this one.
        self._predecessors.find()
        # The kubelet's own socket is always in the first; folders that no path uses are ignored.
        watched = (self._folders.device_plugins, *map(self._folders.directory, self._folders.paths))
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for name in sorted(self._resources):
                    self._start(name)
                group.create_task(DirectoryWatcher(watched, self._look, self._open_watch).run(), name="directories")
                group.create_task(self._view.run(), name="kubelet view")
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None

    def hand_over(self) -> None:
        """When ``run`` ends, leave the kubelet a plugin that a successor can take over; call ``leave`` afterwards."""
        for resource in self._resources.values():
            resource.registrar.hand_over()

    async def leave(self, seconds: float) -> bool:
        """Whether the kubelet has changed over within ``seconds``; no stream and no socket is left afterwards."""
        registrars = [resource.registrar for resource in self._resources.values()]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(registrar.relieved() for registrar in registrars))
        except TimeoutError:
            return False
        finally:
            await asyncio.gather(*(registrar.stop() for registrar in registrars))
        return True

    def status(self) -> tuple[ResourceStatus, ...]:
        """Every resource, by name."""
        return tuple(
            ResourceStatus(
                name,
                len(resource.listing.devices),
                resource.listing.healthy,
                resource.listing.streams,
                resource.registrar.status,
                resource.problem,
            )
            for name, resource in sorted(self._resources.items())
        )

    def waiting_for(self) -> tuple[str, ...]:
        """Why the door is not ready: one sentence for each resource with devices and no open device stream."""
        return tuple(
            f"resource {status.name} is {status.registration.state}"
            + (f": {status.registration.detail}" if status.registration.detail else "")
            for status in self.status()
            if status.devices and (not status.streams or status.registration.state is PluginRegistrationState.CONTESTED)
        )

    def _show(self, offer: ResourceOffer) -> None:
        resource = self._resources.get(offer.resource)
        if resource is None:
            resource = self._resources[offer.resource] = self._make(offer)
            if self._update(offer.resource, resource, offer.devices, offer.rule):
                self._start(offer.resource)
            return
        resource.servicer.answer_with(self._render_for(offer))
        if self._update(offer.resource, resource, offer.devices, offer.rule) and resource.task is None:
            self._start(offer.resource)

    def _make(self, offer: ResourceOffer) -> _Resource:
        listing = DeviceListing(offer.resource, self.bus)
        servicer = DevicePluginServicer(
            listing, self._render_for(offer), self._observer, self._recent, self._admission, records=self._records
        )
        registrar = Registrar(
            offer.resource,
            self._folders,
            listing,
            servicer,
            bus=self.bus,
            events=self._events,
            observer=self._observer,
            clocks=self._clocks,
            view=self._view,
            pace=self._pace,
            predecessors=self._predecessors,
        )
        return _Resource(listing, servicer, registrar)

    def _update(
        self, name: str, resource: _Resource, devices: tuple[OfferedDevice, ...], rule: Rule | None = None
    ) -> bool:
        """Show these devices of one resource; False if the list is too large for the kubelet."""
        try:
            changed = resource.listing.update(devices, hints=rule is None or rule.hints)
        except ListTooLarge as error:
            if resource.problem != str(error):
                log.warning(
                    "the device list is too large for the kubelet", extra={"resource": name, "bytes": error.size}
                )
                self._events.emit(EventType.WARNING, "ListTooLarge", str(error))
            resource.problem = str(error)
            return False
        resource.problem = ""
        resource.servicer.use(self._placement, None if rule is None else rule.sharing)
        if changed:
            listing = resource.listing
            self._observer.listed(name, len(listing.devices), listing.healthy)
            log.info("list shown", extra={"resource": name, "devices": len(devices), "healthy": listing.healthy})
        return True

    def _start(self, name: str) -> None:
        resource = self._resources[name]
        if self._group is not None and resource.task is None and resource.listing.shown:
            resource.task = self._group.create_task(resource.registrar.run(), name=f"registrar {name}")

    def _drop(self, name: str) -> None:
        resource = self._resources.pop(name)
        self._recent.expected.withdrawn(name)
        if self._records is not None:
            self._records.withdrawn(name)
        if resource.task is not None:
            resource.task.cancel()
        log.info("resource dropped: no rule offers it", extra={"resource": name})

    def _streams_changed(self, changed: StreamsChanged) -> None:
        resource = self._resources.get(changed.resource)
        if resource is not None:
            resource.registrar.wake()

    def _kubelet_answered(self, _: KubeletAnswered) -> None:
        self._wake()

    def _look(self) -> None:
        self.bus.publish(KubeletFolderChanged())
        self._wake()

    def _wake(self) -> None:
        for resource in self._resources.values():
            resource.registrar.wake()
