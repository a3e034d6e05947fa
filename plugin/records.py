"""Which devices a scheduler has recorded for the pods of this node, and which of them a container's request gets.

A scheduler that places pods on devices writes them into the pod's annotations when it binds it. The kubelet names no
pod when it asks which devices to prefer, so the pod is guessed: a pod is a candidate if it asks for exactly this number
of this resource, the kubelet has not recorded devices for it yet, and its devices are free. The pod that was bound
first comes first, because the kubelet admits pods in the order in which they arrive. If the guess is wrong, the pods
have each other's devices, and ``RecordBook.heard`` swaps the records.

A record is a hint and orders free devices, nothing more:

- it counts only if it names as many devices as its pod asks for, so no pod can reserve more than it would get;
- a request never gets fewer devices than without records: devices recorded for others come last, they are not withheld;
- a record that names an unknown or a shared device, or devices of two resources, is ignored.

Pure: no clock, no I/O, no API server. For the event loop alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from node.offer import OfferedDevice
from node.topology.model import Cell, CellLevel
from node.values import Value, value
from plugin.preferred import PlacementMap
from plugin.record_annotations import MOST_DEVICES

MOST_PODS = 1024
"""Pods of one namespace whose records are kept; a node runs a few hundred pods at most."""


@value
class ContainerSizes(Value):
    """How many devices each container of a pod asks for: containers that run side by side, and init containers."""

    together: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """How many devices the pod has at most: init containers pass theirs on."""
        return max(sum(self.together), *self.before, 0)

    def may_ask(self, size: int, taken: int) -> bool:
        """Whether a container may ask for ``size`` devices while others of the pod have ``taken``."""
        if size in self.before and not taken:
            return True
        if size not in self.together:
            return False
        others = list(self.together)
        others.remove(size)
        sums = {0}
        for each in others:
            sums |= {each + one for one in sums}
        return taken in sums


@value
class PodRecord(Value):
    """A pod of this node and the devices that its scheduler recorded for it.

    ``bound``, ``created``: times as text that sorts. ``sizes``: by resource what its containers ask for. ``devices``:
    ids as the kubelet knows them; ``indices``: the driver's numbers, which count where there are no ids. ``allocated``:
    the ids that the agent has noted on the pod as allocated.
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

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[str, str, str]:
        """Sorts pods as the kubelet probably admits them."""
        return self.bound, self.created, str(self)


@value
class PendingRecord(Value):
    """The record of a pod that the kubelet has not given devices yet, in ids of one resource."""

    pod: str
    sizes: ContainerSizes
    devices: frozenset[str]


@value
class RecordedChoice(Value):
    """``devices``: choose among these, which are recorded for the container's pod; empty if no pod fits.

    ``promised``: devices that are recorded for other pods.
    """

    devices: frozenset[str] = frozenset()
    promised: frozenset[str] = frozenset()


NO_CHOICE = RecordedChoice()


def choose(
    pending: Iterable[PendingRecord], available: Collection[str], required: Collection[str], size: int
) -> RecordedChoice:
    """The devices for a container that asks for ``size``: those of the first pending pod that may be asking."""
    fixed = frozenset(required)
    free = fixed.union(available)
    promised: set[str] = set()
    for each in pending:
        left = each.devices & free
        taken = len(each.devices) - len(left)
        if len(left) >= size > 0 and fixed <= each.devices and each.sizes.may_ask(size, taken):
            return RecordedChoice(left)
        promised |= left
    return RecordedChoice(promised=frozenset(promised - fixed))


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

    def __init__(self, devices: Mapping[str, OfferedDevice], ground: PlacementMap) -> None:
        self._names = {id_: ground.gpu_of(each.device) for id_, each in devices.items() if not each.share}
        self._ids: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        for id_, each in devices.items():
            index = each.device.index or ""
            if not each.share and each.device.parent is None and index.isascii() and index.isdigit():
                self._ids[int(index)] = id_
                self.numbers[id_] = int(index)
        self._root = ground.topology.root

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
    """The records of this node's pods, and what became of them."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRecord] = {}
        self._counts: dict[str, int] = {}
        self._resources: dict[str, _Resource] = {}
        self._swapped: dict[str, frozenset[str]] = {}
        """By UID of a pod whose record was swapped, the devices that it has instead."""
        self._settled: set[str] = set()
        """UIDs of pods that the kubelet has given devices."""
        self._pending: dict[str, tuple[PendingRecord, ...]] = {}
        """By resource; dropped whenever anything changes."""

    def offered(self, resource: str, devices: Mapping[str, OfferedDevice], ground: PlacementMap) -> None:
        """Note that a resource has these devices now."""
        self._resources[resource] = _Resource(devices, ground)
        self._pending.clear()

    def withdrawn(self, resource: str) -> None:
        """Note that a resource is not offered any more."""
        self._resources.pop(resource, None)
        self._pending.clear()

    def replaced(self, records: Iterable[PodRecord]) -> None:
        """Take the records of all pods of the node."""
        before = self._pods.keys()
        self._pods, self._counts = {}, {}
        for record in records:
            self._keep(record)
        for uid in before - self._pods.keys():
            self._forget(uid)
        self._pending.clear()

    def applied(self, record: PodRecord) -> None:
        """Take the record of a new or changed pod."""
        if self._pods.get(record.uid) != record:
            self._drop(record.uid)
            self._keep(record)
            self._pending.clear()

    def deleted(self, uid: str) -> None:
        """Forget a pod that is gone or over."""
        self._drop(uid)
        self._forget(uid)
        self._pending.clear()

    def choose(self, resource: str, available: Collection[str], required: Collection[str], size: int) -> RecordedChoice:
        """See ``choose``."""
        return choose(self.pending(resource), available, required, size)

    def pending(self, resource: str) -> tuple[PendingRecord, ...]:
        """The records that the kubelet has not followed yet, those of the pods that were bound first at first."""
        if resource not in self._pending:
            self._pending[resource] = tuple(
                PendingRecord(record.uid, record.sizes[resource], ids)
                for record in sorted(self._pods.values(), key=lambda each: each.order)
                if record.uid not in self._settled and (ids := self.recorded(resource, record))
            )
        return self._pending[resource]

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

    def heard(self, allocated: Mapping[str, Mapping[str, frozenset[str]]]) -> list[RecordSettled]:
        """Take what the kubelet has given: by the pod's UID and the resource, ids. Returns what is settled by that.

        A pod is settled once it has as many devices as it asks for.
        """
        found = []
        for resource in sorted(self._resources):
            for pending in self.pending(resource):
                actual = allocated.get(pending.pod, {}).get(resource, frozenset())
                if len(actual) == pending.sizes.total:
                    found.append(self._settle(resource, self._pods[pending.pod], actual))
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
        self._settled.add(record.uid)
        self._pending.clear()
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

    def _drop(self, uid: str) -> None:
        record = self._pods.pop(uid, None)
        if record is not None:
            self._counts[record.namespace] -= 1
            if not self._counts[record.namespace]:
                del self._counts[record.namespace]

    def _forget(self, uid: str) -> None:
        self._settled.discard(uid)
        self._swapped.pop(uid, None)
