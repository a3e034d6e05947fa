"""The ledger with everything that feeds it, and the admission of every Allocate of the plugin door.

It exists from the start, because the plugin door enters devices with its first Allocate. While ``run`` runs, ostler
reads the kubelet and checks devices that were given back. On a node with one door the kubelet decides who gets a
device, and the readings matter only to people and to devices that overlap, so ostler reads the kubelet less often.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path

from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.inventory.model import Snapshot
from node.ledger.allocations import KubeletAllocations
from node.ledger.containers import NodeContainers, PodContainers
from node.ledger.events import HoldsChanged, HoldsObserver
from node.ledger.grants import PluginGrants
from node.ledger.holds import HeldError, Hold, HoldState
from node.ledger.keeper import HoldKeeper
from node.ledger.ledger import Ledger
from node.ledger.loop import HoldsLoop, ReadingPace
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.ledger.process_check import PendingRelease, ProcessCheck
from node.ledger.processes import UNSEEN, ComputeProcesses, sees_processes
from node.ledger.reader import KubeletSource, LocalKubelet, Reading
from node.ledger.releases import STEP, Releases, remembered
from node.ledger.tenants import Tenants
from node.offer import Offer, OfferedDevice
from node.rules import Door, Rule
from node.sharing import replica_of
from node.tasks import report_fault
from node.values import Value, replace, value

ANSWERING = 0.5
"""Seconds that a call of the kubelet to the previous instance may still be under way."""
QUIET, MOST_EVENTS = 60.0, 20
"""Seconds within which one event is posted for a refused device, and most devices with an event in that time."""
KNOWN_WITHIN, LOOKED_AGAIN = 2.0, 0.05
"""Seconds for which Allocate waits until the kubelet has reported what pods have, and between two looks at its record.
"""
ALONE = ReadingPace(every=52.0)
"""Pace of the readings for one door; even a slow one ends before ``TRUSTED``, so that knowledge does not expire."""


@value
class BookkeepingOptions(Value):
    """``kubelet``: its root folder; ``device_plugins``: its checkpoint's folder; ``cgroups``: the node's cgroups.

    ``ignore_processes``: names of programs, with ``*``, that do not count as users of a device. ``linger``: seconds for
    which an instance that has handed over may still answer the kubelet.
    """

    kubelet: Path
    device_plugins: Path
    state_dir: Path
    proc: Path
    cgroups: Path
    ignore_processes: tuple[str, ...]
    linger: float


class LossEvents:
    """Posts events about pods that lost a device."""

    def __init__(self, events: EventRecorder, clocks: Clocks) -> None:
        self._events = events
        self._clock = clocks.monotonic
        self._reported: dict[str, float] = {}
        """When an event was last posted for each device."""

    def report(self, resource: str, error: HeldError) -> None:
        """Post one event for a device in a while: controllers create pod after pod, and the metric counts them all."""
        now, device = self._clock(), error.wanted.device
        self._reported = {name: at for name, at in self._reported.items() if now - at < QUIET}
        if device not in self._reported and len(self._reported) < MOST_EVENTS:
            self._reported[device] = now
            text = f"a pod that asked for {resource} was refused: {error}; its controller creates a new one"
            self._events.emit(EventType.WARNING, "PodLostDevice", text)


class ListedDevices:
    """The devices of the plugin door's list: all (``listed``) and those that it offers (``given``).

    ``offered``: when each one was last listed as healthy (monotonic).
    """

    def __init__(self) -> None:
        self.listed: frozenset[str] = frozenset()
        self.given: frozenset[str] = frozenset()
        self.offered: dict[str, float] = {}
        self._healthy: frozenset[str] = frozenset()

    def show(self, offer: Offer, kept: frozenset[str], now: float) -> bool:
        """Make the list from an offer; returns whether a healthy device of the earlier list is not healthy in it.

        ``kept``: devices for claims that are in the offer only because not all holds are known. They count as offered
        only if they did before.
        """
        devices = [item for resource in offer.resources for item in resource.devices]
        self.listed = frozenset(item.device.name for item in devices)
        before, self._healthy = self._healthy, frozenset(item.device.name for item in devices if item.healthy)
        self.given = self._healthy - (kept - self.given)
        self.offered = {name: when for name, when in self.offered.items() if name in self.listed}
        self.repeat(now)
        return bool(before - self._healthy)

    def repeat(self, now: float) -> None:
        """Note that the plugin door still shows the list."""
        self.offered |= dict.fromkeys(self._healthy, now)


class Bookkeeping:
    """Publishes the events of ``node.ledger.events`` on ``bus``. For the event loop alone."""

    def __init__(
        self,
        options: BookkeepingOptions,
        clocks: Clocks,
        processes: ComputeProcesses,
        *,
        events: EventRecorder,
        observer: HoldsObserver,
        reader: KubeletSource | None = None,
        containers: PodContainers | None = None,
    ) -> None:
        """``reader`` replaces the reader of the options' folders; ``containers`` replaces the check of cgroups."""
        self._clock, self._monotonic = clocks.clock, clocks.monotonic
        self._linger = options.linger
        self.observer = observer
        self.plugin = KubeletAllocations()
        off = "" if sees_processes(options.proc) else UNSEEN
        self.pending_release = PendingRelease(ignore=options.ignore_processes, off=off)
        self.tenants = Tenants(remembered(options.state_dir))
        self.ledger = Ledger()
        """All holds."""
        self.bus: EventBus = self.ledger.bus
        self.grants = PluginGrants(self.ledger, self.plugin, self.tenants, clocks=clocks)
        self.keeper = HoldKeeper(
            self.ledger, self.plugin, self.pending_release, self.tenants, self.grants, clocks=clocks
        )
        self.releases = Releases(
            self.tenants,
            containers or NodeContainers(options.cgroups, options.proc, clocks=clocks),
            self.grants,
            options.state_dir,
            bus=self.bus,
            clocks=clocks,
        )
        self._reader = reader or LocalKubelet(options.kubelet, options.device_plugins, clocks)
        self._loop = HoldsLoop(
            self._reader, self.plugin, self.bus, clocks=clocks, events=events, observer=observer, pace=ALONE
        )
        self.bus.subscribe(Reading, self._read)
        self._process_check = ProcessCheck(
            self.pending_release, processes, self.bus, clocks=clocks, events=events, observer=observer
        )
        self._losses = LossEvents(events, clocks)
        self._shown = ListedDevices()
        self._at_scheduler: frozenset[str] = frozenset()
        self._attributing: asyncio.Task[None] | None = None
        self._confirmable = asyncio.Event()
        self._seen = NOTHING_HELD
        """The facts of the doors' last offers."""
        self._has_read = self._sees_reading = False
        """Whether the kubelet was read at all, and before the last offers were made."""
        self._listed = asyncio.Event()
        """Set once the plugin door lists what was offered after the first reading."""
        self._running = self._over = False

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> Awaitable[None] | None:
        """The condition that an Allocate of these must await; see ``plugin.admission.Admission``.

        The kubelet's record is searched for every id of the device, which may have had another resource or id when a
        pod got it.

        An earlier pod may have ended a moment ago, or the kubelet may have forgotten that it has the device: whenever
        anybody asks what pods have, the kubelet rebuilds its map of allocated ids without what it is allocating at that
        moment (kubelet 1.36, kubernetes#137534). Its record of pods is right anyway.
        """
        self._loop.allocating()
        if self.grants.is_refused(devices):
            return None
        known = self.plugin.known(self._monotonic()) and self.plugin.read_since(self.keeper.answered_until)
        asked: dict[tuple[str, str], OfferedDevice] = {}
        for each in devices:
            for id_ in self.plugin.ids.of(each.device.name, each.share):
                asked[id_] = each
            if not known:
                # Another instance may have given the device whole that is shared now.
                asked[resource, each.id] = asked[resource, replica_of(each.id)[0]] = each
        if asked or self.plugin.unattributed or self.releases.in_the_way(devices):
            return self._cleared(resource, devices, asked)
        return None

    async def _cleared(
        self, resource: str, devices: Sequence[OfferedDevice], asked: Mapping[tuple[str, str], OfferedDevice]
    ) -> None:
        """Return when no other pod can use the devices; raises ``HeldError``.

        First attributes the devices allocated just before to their pods: with this allocation the kubelet forgets a pod
        that was deleted by force meanwhile.
        """
        began = self._monotonic()
        if self._reader.has_records:
            if asked:
                await self._look_up(resource, asked)
            await self._attribute()
        else:
            self.keeper.attribute(())
        await self._until_unheld(resource, devices, began)
        began = self._monotonic()
        try:
            await self.releases.ended(resource, devices)
        except HeldError as error:
            self.observer.waited(given=False)
            self._lost(resource, error)
            raise
        if self._monotonic() - began > STEP:
            self.observer.waited(given=True)

    async def _attribute(self) -> None:
        """Read which pods got the devices that were allocated."""
        recorded = await self._reader.recorded() if self._reader.has_records else ()
        if recorded is not None:
            self.keeper.attribute(recorded)

    async def _until_unheld(self, resource: str, devices: Sequence[OfferedDevice], began: float) -> None:
        """Return when no pod can have what overlaps the devices; raises ``HeldError`` if that takes too long.

        A pod that is refused fails for good, and an agent that has just started knows a moment later what pods have.
        Once ``run`` has ended nothing waits. ``began``: when the kubelet asked, with everything before that on record.
        """
        while (error := self.grants.possibly_held(resource, devices, began)) is not None:
            if self._over or self._monotonic() - began >= KNOWN_WITHIN:
                self._lost(resource, error)
                raise error
            self._loop.allocating()
            await asyncio.sleep(LOOKED_AGAIN)
            await self._attribute()

    async def _look_up(self, resource: str, ids: Mapping[tuple[str, str], OfferedDevice]) -> None:
        holding = await self._reader.holding(ids.keys(), self.keeper.pods.gone)
        if holding is None:
            return
        device, now = ids[holding.resource, holding.id].device.name, self._clock()
        other = "" if holding.resource == resource else f" as {holding.resource}"
        holder = f"{holding.pod}{other}, for which the kubelet has it on record"
        error = HeldError(
            Hold(device, Door.PLUGIN, f"a pod that asked for {resource}", now),
            Hold(device, Door.PLUGIN, holder, now, state=HoldState.LISTED),
        )
        self._lost(resource, error)
        raise error

    def unlisted(self) -> Awaitable[None] | None:
        """The condition that GetPreferredAllocation must await before it chooses shares; see
        ``plugin.admission.Admission``.

        Once ``run`` has ended nothing waits, and neither does anything if the kubelet was asked and did not answer.
        """
        return None if self._listed.is_set() or self._over else self._first_list()

    async def _first_list(self) -> None:
        self._loop.read_by(self._monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_WITHIN):
                await self._listed.wait()

    def allocate(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Enter what the plugin door allocates; raises HeldError. See ``plugin.admission.Admission``."""
        try:
            self.grants.allocate(resource, devices)
        except HeldError as error:
            self._lost(resource, error)
            raise
        self._loop.allocating()
        if self._running:
            self._loop.soon()

    def _lost(self, resource: str, error: HeldError) -> None:
        self.observer.lost(Door.PLUGIN)
        self._losses.report(resource, error)

    def kubelet_changed(self) -> None:
        """Read soon: something in the kubelet's device plugin folder has changed, possibly its checkpoint."""
        if not self._running:
            return
        self._loop.soon()
        if self.plugin.unattributed and (self._attributing is None or self._attributing.done()):
            # At once: the next allocation may overwrite the checkpoint, and would have to wait for this.
            self._attributing = asyncio.get_running_loop().create_task(self._attribute(), name="attribution")
            report_fault(self._attributing, "attribution")

    def pods_changed(self) -> None:
        """Read soon: a pod is known to be gone, or a claim needs a device that a pod has."""
        if self._running:
            self._loop.wake()

    def read_often(self) -> None:
        """Read the kubelet more often from now on: the DRA door, or MPS, needs to know what this node's pods have."""
        self._loop.follow(ReadingPace())

    def begin(self, *, relieves: bool) -> None:
        """Start to serve the kubelet; ``relieves``: another instance may still answer it for a while.

        An instance that was killed may also have given an answer a moment ago that the kubelet has not recorded yet.
        """
        self.keeper.begin(self._monotonic() + ANSWERING + (self._linger if relieves else 0.0))

    def changed_over(self) -> None:
        """The kubelet has switched to the lists of this instance."""
        self.keeper.changed_over(self._monotonic() + ANSWERING)
        self._look_again()

    def place(self, snapshot: Snapshot, rules: Iterable[Rule]) -> None:
        """Take in the devices and the configured rules."""
        self.keeper.place(snapshot, rules)

    def context(self, at_scheduler: frozenset[str], contested: frozenset[str]) -> OfferContext:
        """The facts that the current offers depend on."""
        self._at_scheduler = at_scheduler
        context = self._seen = self._standing()
        self._sees_reading = self._has_read
        # A pod is proved to live only while the kubelet can be read.
        contested = contested if context.known else frozenset()
        return replace(context, at_scheduler=at_scheduler, contested=contested)

    def shown(self, offer: Offer) -> None:
        """Note that the plugin door has just listed this offer."""
        # Until all holds are known, the plugin door also lists devices for claims.
        kept = frozenset[str]() if self._seen.known else self._at_scheduler
        withdrawn = self._shown.show(offer, kept, self._monotonic())
        if self._sees_reading:
            self._listed.set()
        if self._running and withdrawn:
            # A device that moves to the other door waits until the kubelet no longer counts it.
            self._loop.soon()

    def pending(self) -> Mapping[str, int]:
        """Devices that are pending release, by cause: containers of a deleted pod, leftover processes, or a check."""
        by_pod = {hold.device for hold in self.tenants.wanted(self._monotonic()).values()}
        unchecked = [device for device in self.pending_release.wanted() if device not in by_pod]
        used = sum(bool(self.pending_release.left(device)) for device in unchecked)
        return {"containers": len(by_pod), "processes": used, "looking": len(unchecked) - used}

    def unknown_because(self) -> str:
        """Why ostler does not know everything that the plugin door has allocated; empty where it does."""
        return self.plugin.unknown_because(self._monotonic()) if self._running else ""

    async def run(self) -> None:
        """Read the kubelet and check free devices until cancelled."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._loop.run(), name="readings of the kubelet")
                group.create_task(self._process_check.run(), name="left-over processes")
                group.create_task(self.releases.run(), name="containers of deleted pods")
                group.create_task(self._confirm(), name="visibility of containers")
        finally:
            self._running, self._over = False, True
            self._listed.set()

    def _standing(self) -> OfferContext:
        shown = self._shown
        shown.repeat(self._monotonic())
        return self.keeper.context(listed=shown.listed, offered=shown.offered, healthy=shown.given)

    async def _confirm(self) -> None:
        """After every reading, compare the visible containers with the pods that the kubelet reports alive."""
        while True:
            self._confirmable.clear()
            await self.releases.confirm(self.plugin.living)
            await self._confirmable.wait()

    def _read(self, reading: Reading) -> None:
        self.keeper.read(reading)
        self._confirmable.set()
        self._has_read = True
        if self._standing() != self._seen:
            self.bus.publish(HoldsChanged())
        else:
            self._listed.set()
        self._look_again()

    def _look_again(self) -> None:
        """Read the kubelet as soon as no other instance can have answered it."""
        until = self.keeper.answered_until
        if self._running and not self.plugin.read_since(until):
            self._loop.read_by(until)
