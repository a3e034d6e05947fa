"""Which devices a scheduler has recorded for the pods of this node, and what became of the records.

A scheduler that places pods on devices writes them into the pod's annotations when it binds it. The kubelet names no
pod when it asks which devices to prefer; ``plugin.record_choice`` guesses it. If the guess is wrong, the pods have each
other's devices, and ``RecordBook.settle`` swaps the records.

The kubelet may hear of a pod before the agent does. It never asks for a pod that does not exist, so if no known pod can
be asking, ``Arrivals`` waits a moment for the one that is.

A record is a hint and orders free devices, nothing more:

- it counts only if it names as many devices as its pod asks for, so no pod can reserve more than it would get;
- a request never gets fewer devices than without records: devices recorded for others come last, they are not withheld;
- a record that names an unknown or a shared device, or devices of two resources, is ignored.

No I/O and no API server; no clock but the loop's, for waiting. For the event loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from operator import attrgetter

from node.offer import OfferedDevice
from node.topology.model import Cell, CellLevel
from node.values import Value, value
from plugin.preferred import PlacementMap
from plugin.record_annotations import MOST_DEVICES
from plugin.record_choice import ContainerSizes, PendingRecord, RecordedChoice, choose

MOST_PODS = 1024
"""Pods of one namespace that are kept; a node runs a few hundred pods at most."""
PATIENCE = 1.0
"""Seconds that a request of the kubelet waits at most for the pod that it is about."""
PAUSE = 60.0
"""Seconds in which no request waits after one has waited in vain: its pod may be one that is not reported here."""


@value
class PodRecord(Value):
    """A pod of this node that asks for devices, and those that its scheduler recorded for it, none if it did not.

    ``bound``, ``created``: times as text that sorts. ``sizes``: by resource what its containers ask for. ``devices``:
    ids as the kubelet knows them; ``indices``: the driver's numbers, which count where there are no ids. ``allocated``:
    the ids that the agent has noted on the pod as allocated. ``is_asking``: the kubelet has not admitted the pod yet.
    """

    uid: str
    namespace: str
    name: str
    bound: str
    created: str
    sizes: Mapping[str, ContainerSizes]
    devices: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    allocated: tuple[str, ...] = ()
    is_asking: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[str, str, str]:
        """Sorts pods that were reported together as the kubelet probably admits them."""
        return self.bound, self.created, str(self)


class RecordOutcome(StrEnum):
    """What the kubelet did with a record."""

    HONOURED = "honoured"
    """The pod has the recorded devices."""
    SWAPPED = "swapped"
    """The pod has devices that were recorded for another pod, which now has this pod's record."""
    OTHER = "other"
    """The pod has other devices."""


@value
class RecordSettled(Value):
    """The kubelet gave a pod its devices; ``partner``: the pod whose record was swapped with this one's."""

    pod: PodRecord
    resource: str
    recorded: frozenset[str]
    actual: frozenset[str]
    outcome: RecordOutcome
    partner: PodRecord | None = None


class _Resource:
    """The devices of one resource by id and by number, and how large a cell a set of them spans."""

    def __init__(self, devices: Mapping[str, OfferedDevice], placement: PlacementMap) -> None:
        self._names = {id_: placement.gpu_of(each.device) for id_, each in devices.items() if not each.share}
        self._ids: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        for id_, each in devices.items():
            index = each.device.index or ""
            if not each.share and each.device.parent is None and index.isascii() and index.isdigit():
                self._ids[int(index)] = id_
                self.numbers[id_] = int(index)
        self._root = placement.topology.root

    def ids(self, record: PodRecord) -> frozenset[str]:
        """The ids of the recorded devices; empty if one is unknown or shared."""
        found = record.devices or [self._ids.get(index, "") for index in record.indices]
        return frozenset(found) if all(id_ in self._names for id_ in found) else frozenset()

    def level(self, ids: Iterable[str]) -> CellLevel | None:
        """The level of the smallest cell that has all of these."""
        names = {self._names.get(id_) for id_ in ids}
        cell = self._root
        if cell is None or not names <= set(cell.gpus):
            return None
        while (inner := _child_with(cell, names)) is not None:
            cell = inner
        return cell.level


def _child_with(cell: Cell, names: set[str | None]) -> Cell | None:
    return next((child for child in cell.children if names <= set(child.gpus)), None)


class RecordBook:
    """The records of this node's pods in the order of their arrival, and what became of them."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRecord] = {}
        self._arrivals: dict[str, int] = {}
        self._arrived = 0
        self._changed = asyncio.Event()
        self._counts: dict[str, int] = {}
        self._resources: dict[str, _Resource] = {}
        self._swapped: dict[str, frozenset[str]] = {}
        """By UID of a pod whose record was swapped, the devices that it has instead."""
        self._settled: set[tuple[str, str]] = set()
        """UIDs of pods, each with a resource of which the kubelet has given it devices."""
        self._advised: dict[tuple[str, str], int] = {}
        """By UID and resource, for how many devices of the pod the kubelet has asked."""
        self._asking: dict[str, tuple[PendingRecord, ...]] = {}
        """By resource; dropped whenever anything changes."""

    def offered(self, resource: str, devices: Mapping[str, OfferedDevice], placement: PlacementMap) -> None:
        """Note that a resource has these devices now."""
        self._resources[resource] = _Resource(devices, placement)
        self._asking.clear()

    def withdrawn(self, resource: str) -> None:
        """Note that a resource is not offered any more."""
        self._resources.pop(resource, None)
        self._asking.clear()

    def replaced(self, records: Iterable[PodRecord]) -> None:
        """Take all pods of the node that ask for devices."""
        before = self._pods.keys()
        self._pods, self._counts = {}, {}
        for record in sorted(records, key=attrgetter("order")):
            self._keep(record)
        for uid in before - self._pods.keys():
            self._forget(uid)
        self._notify_waiting()

    def applied(self, record: PodRecord) -> None:
        """Take a new or changed pod that asks for devices."""
        if self._pods.get(record.uid) != record:
            self._drop(record.uid)
            self._keep(record)
            self._notify_waiting()

    def deleted(self, uid: str) -> None:
        """Forget a pod that is gone or over."""
        self._drop(uid)
        self._forget(uid)
        self._asking.clear()

    def choose(self, resource: str, available: Collection[str], required: Collection[str], size: int) -> RecordedChoice:
        """See ``choose``; the kubelet asks, and is advised."""
        choice = choose(self._asking_for(resource), available, required, size)
        if choice.pod:
            key = choice.pod, resource
            self._advised[key] = self._advised.get(key, 0) + size - len(required)
            self._asking.clear()
        return choice

    def knows(self, resource: str, available: Collection[str], required: Collection[str], size: int) -> bool:
        """Whether a known pod may be asking for this."""
        return bool(choose(self._asking_for(resource), available, required, size).pod)

    async def changed(self) -> None:
        """Wait until a pod arrives or changes."""
        await self._changed.wait()

    def pending(self, resource: str) -> tuple[PendingRecord, ...]:
        """The records that the kubelet has not followed yet, in the order in which their pods arrived."""
        return tuple(each for each in self._asking_for(resource) if each.devices)

    def _asking_for(self, resource: str) -> tuple[PendingRecord, ...]:
        """The pods that the kubelet has not given devices of this resource yet, in the order of their arrival."""
        if resource not in self._asking:
            self._asking[resource] = tuple(
                PendingRecord(
                    record.uid,
                    record.sizes[resource],
                    self.recorded(resource, record),
                    record.is_asking,
                    self._advised.get((record.uid, resource), 0),
                )
                for record in sorted(self._pods.values(), key=lambda each: self._arrivals[each.uid])
                if (record.uid, resource) not in self._settled and resource in record.sizes
            )
        return self._asking[resource]

    def recorded(self, resource: str, record: PodRecord) -> frozenset[str]:
        """The ids that are recorded for a pod in this resource; empty if its record does not count."""
        known, sizes = self._resources.get(resource), record.sizes.get(resource)
        if known is None or sizes is None:
            return frozenset()
        ids = self._swapped.get(record.uid) or known.ids(record)
        return ids if len(ids) == sizes.total else frozenset()

    def numbers(self, resource: str, ids: Iterable[str]) -> tuple[int, ...]:
        """The driver's numbers of these devices, sorted; empty if one has none."""
        known = self._resources[resource].numbers if resource in self._resources else {}
        found = sorted(known.get(id_, -1) for id_ in ids)
        return () if -1 in found else tuple(found)

    def listed(self, resource: str, ids: Iterable[str]) -> list[str]:
        """These ids in the order of the driver's numbers, and those without one last."""
        known = self._resources[resource].numbers if resource in self._resources else {}
        return sorted(ids, key=lambda id_: (known.get(id_, len(known) + MOST_DEVICES), id_))

    def settle(self, allocated: Mapping[str, Mapping[str, frozenset[str]]]) -> list[RecordSettled]:
        """Take what the kubelet has given: by the pod's UID and the resource, ids. Returns what is settled by that.

        A pod is settled once it has as many devices as it asks for.
        """
        found = []
        for resource in sorted(self._resources):
            for pending in self._asking_for(resource):
                actual = allocated.get(pending.pod, {}).get(resource, frozenset())
                if len(actual) != pending.sizes.total:
                    continue
                if self.recorded(resource, self._pods[pending.pod]):
                    found.append(self._settle(resource, self._pods[pending.pod], actual))
                else:
                    self._settled.add((pending.pod, resource))
                    self._asking.clear()
        return found

    def _settle(self, resource: str, record: PodRecord, actual: frozenset[str]) -> RecordSettled:
        recorded = self.recorded(resource, record)
        partner = None if actual == recorded else self._partner(resource, recorded, actual)
        outcome = RecordOutcome.OTHER
        if actual == recorded:
            outcome = RecordOutcome.SWAPPED if record.uid in self._swapped else RecordOutcome.HONOURED
        else:
            self._swapped[record.uid] = actual
        if partner is not None:
            outcome = RecordOutcome.SWAPPED
            self._swapped[partner.uid] = recorded
        self._settled.add((record.uid, resource))
        self._asking.clear()
        return RecordSettled(record, resource, recorded, actual, outcome, partner)

    def _partner(self, resource: str, recorded: frozenset[str], actual: frozenset[str]) -> PodRecord | None:
        """The pending pod for which ``actual`` is recorded, if the cells of both are equal."""
        known = self._resources[resource]
        if known.level(recorded) != known.level(actual):
            return None
        for other in self.pending(resource):
            if other.devices == actual:
                return self._pods[other.pod]
        return None

    def _keep(self, record: PodRecord) -> None:
        count = self._counts.get(record.namespace, 0)
        if record.uid and count < MOST_PODS:
            self._pods[record.uid] = record
            self._counts[record.namespace] = count + 1
            if record.uid not in self._arrivals:
                self._arrivals[record.uid] = self._arrived
                self._arrived += 1

    def _drop(self, uid: str) -> None:
        record = self._pods.pop(uid, None)
        if record is not None:
            self._counts[record.namespace] -= 1
            if not self._counts[record.namespace]:
                del self._counts[record.namespace]

    def _forget(self, uid: str) -> None:
        self._swapped.pop(uid, None)
        self._arrivals.pop(uid, None)
        self._settled = {key for key in self._settled if key[0] != uid}
        self._advised = {key: count for key, count in self._advised.items() if key[0] != uid}

    def _notify_waiting(self) -> None:
        self._asking.clear()
        self._changed.set()
        self._changed = asyncio.Event()


class Arrivals:
    """Waits for pods that the kubelet has heard of before the agent has."""

    def __init__(self, book: RecordBook, *, patience: float = PATIENCE, pause: float = PAUSE) -> None:
        self._book = book
        self._patience = patience
        self._pause = pause
        self._resumes = 0.0

    async def wait(self, resource: str, available: Collection[str], required: Collection[str], size: int) -> None:
        """Return when a pod that may be asking for this is known, or when waiting makes no sense."""
        loop = asyncio.get_running_loop()
        if size <= 0 or loop.time() < self._resumes:
            return
        try:
            async with asyncio.timeout(self._patience):
                while not self._book.knows(resource, available, required, size):
                    await self._book.changed()
        except TimeoutError:
            self._resumes = loop.time() + self._pause
