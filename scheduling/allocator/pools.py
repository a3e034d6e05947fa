"""Pools: the slices of a driver that belong together, as one node sees them; and the features that are assumed.

The rules are those of Kubernetes 1.36 and later. Of the slices that are for the node, the newest generation of each
pool counts. A pool is complete if it has as many slices as its slices say; the slices that are for other nodes are
only looked for if that number is not reached. A newer generation among those makes the pool obsolete: it is left out,
since the driver is about to replace it. A complete pool can still be invalid: two devices of one name, two counter sets
of one name, a device that consumes a counter that no slice declares.

The order of pools, slices and devices is the order in which devices are tried: pools by driver and name, those with
binding conditions after all others; slices by name; devices as their slice lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

from scheduling.allocator.node_selection import Labels
from scheduling.allocator.reading import Object, Part, wrong
from scheduling.allocator.slices import PoolID, ResourceSlice, SliceDevice


@dataclass(frozen=True, slots=True)
class Features:
    """Feature gates; the defaults are those of Kubernetes 1.37."""

    admin_access: bool = True  # DRAAdminAccess
    prioritized_list: bool = True  # DRAPrioritizedList: firstAvailable
    partitionable_devices: bool = True  # DRAPartitionableDevices: shared counters, perDeviceNodeSelection
    device_taints: bool = True  # DRADeviceTaints
    binding_conditions: bool = True  # DRADeviceBindingConditions and DRAResourceClaimDeviceStatus
    consumable_capacity: bool = True  # DRAConsumableCapacity: allowMultipleAllocations, capacity requests
    fractional_capacity_range: bool = True  # DRAFractionalCapacityRange: steps below one unit
    list_attributes: bool = False  # DRAListTypeAttributes


CounterSets = Mapping[str, Mapping[str, int]]
"""Counter set -> counter -> nano-units."""


@dataclass(frozen=True, eq=False)
class ResourcePool:
    """One pool for one node.

    An incomplete or invalid pool has no slices. `present` of `expected` slices exist; `invalid_reason` is empty for a
    valid pool. `elsewhere` are the device slices that are for other nodes: their devices may hold shared counters.
    """

    id: PoolID
    is_incomplete: bool = False
    invalid_reason: str = ""
    slices: tuple[ResourceSlice, ...] = ()
    elsewhere: tuple[ResourceSlice, ...] = ()
    counter_sets: CounterSets = field(default_factory=dict)
    present: int = 0
    expected: int = 0

    @property
    def is_invalid(self) -> bool:
        """Whether a rule is broken that makes the pool unusable."""
        return bool(self.invalid_reason)

    @property
    def usable(self) -> bool:
        """Whether devices of the pool can be allocated."""
        return not self.is_incomplete and not self.invalid_reason

    @cached_property
    def devices(self) -> tuple[SliceDevice, ...]:
        """The devices in the order in which they are tried."""
        return tuple(device for each in self.slices for device in each.devices)

    @cached_property
    def has_binding_conditions(self) -> bool:
        """Whether any device has conditions that must come true after it is allocated."""
        return any(device.binding_conditions is not None for device in self.devices)


class SliceIndex:
    """All slices of a cluster, by what gathering looks them up with."""

    def __init__(self, slices: Iterable[Object]) -> None:
        """Read the slices (v1 objects). Raises `InvalidObject`.

        `complete` remembers the pools that were built (see `_complete`), for all nodes that share them.
        """
        self.all = tuple(ResourceSlice(each) for each in slices)
        self._on_node: dict[str, list[ResourceSlice]] = {}
        self._shared: list[ResourceSlice] = []
        self._of_pool: dict[PoolID, list[ResourceSlice]] = {}
        self.complete: dict[tuple[tuple[ResourceSlice, ...], tuple[ResourceSlice, ...], bool], ResourcePool] = {}
        for each in self.all:
            if each.nodes.name:
                self._on_node.setdefault(each.nodes.name, []).append(each)
            else:
                self._shared.append(each)
            self._of_pool.setdefault(each.pool, []).append(each)

    def for_node(self, node: str) -> list[ResourceSlice]:
        """The slices that name this node, then those that name none."""
        return self._on_node.get(node, []) + self._shared

    def of_pool(self, pool: PoolID) -> Sequence[ResourceSlice]:
        """The slices of a pool, of every generation and for every node."""
        return self._of_pool.get(pool, ())


def gather_pools(
    node: Object,
    slices: SliceIndex | Iterable[Object],
    features: Features = Features(),
) -> list[ResourcePool]:
    """The pools that have devices for this node (a v1 Node), in the order in which they are tried.

    Outdated slices and pools are left out in silence; incomplete and invalid pools are in the list and say so. Raises
    `FatalError` if a node selector of any slice cannot be read.
    """
    index = slices if isinstance(slices, SliceIndex) else SliceIndex(slices)
    name, labels = node_identity(node)
    found: dict[PoolID, list[ResourceSlice]] = {}
    for each in index.for_node(name):
        if not _understood(each, features) or not each.selects(name, labels):
            continue
        so_far = found.setdefault(each.pool, [each])
        if so_far[0] is each or each.generation < so_far[0].generation:
            continue
        if each.generation > so_far[0].generation:
            found[each.pool] = [each]
        else:
            so_far.append(each)
    pools = [pool for pool in (_pool(id_, own, index, features) for id_, own in found.items()) if pool is not None]
    return sorted(pools, key=attrgetter("has_binding_conditions", "id"))


def node_identity(node: Object) -> tuple[str, Labels]:
    """Name and labels of a v1 Node."""
    whole = Part.whole("Node", node)
    labels = whole.part("metadata").part("labels")
    for key, value in labels.object.items():
        if not isinstance(value, str):
            raise wrong(whole.owner, f"metadata.labels[{key}]", value, "a string (in quotes)")
    return whole.owner.name, labels.object


def _understood(each: ResourceSlice, features: Features) -> bool:
    """Whether a cluster with these features looks at the slice at all."""
    if not features.partitionable_devices and (each.per_device is not None or each.has_counters):
        return False
    return not each.has_compatibility_groups


def _pool(id_: PoolID, own: list[ResourceSlice], index: SliceIndex, features: Features) -> ResourcePool | None:
    """The pool that the slices for the node make, or None if it is obsolete."""
    generation, expected = own[0].generation, own[0].slice_count
    if len(own) == expected:
        return _complete(own, (), index, features)
    everything = index.of_pool(id_)
    if any(each.generation > generation for each in everything):
        return None
    current = [each for each in everything if each.generation == generation and not each.has_compatibility_groups]
    if len(current) != expected:
        return ResourcePool(id_, is_incomplete=True, present=len(current), expected=expected)
    own_names = {each.name for each in own}
    return _complete(own, [each for each in current if each.name not in own_names], index, features)


def _complete(
    own: Sequence[ResourceSlice], others: Sequence[ResourceSlice], index: SliceIndex, features: Features
) -> ResourcePool:
    """The pool that these slices make; made once for all nodes that see the same slices."""
    key = (tuple(own), tuple(others), features.partitionable_devices)
    pool = index.complete.get(key)
    if pool is None:
        pool = index.complete[key] = _build(own[0].pool, own, others, features)
    return pool


def _build(
    id_: PoolID, own: Sequence[ResourceSlice], others: Sequence[ResourceSlice], features: Features
) -> ResourcePool:
    count = len(own) + len(others)
    sets_from = [each for each in (*own, *others) if features.partitionable_devices and each.has_counters]
    is_counter_slice = {id(each) for each in sets_from}
    slices = tuple(sorted((each for each in own if id(each) not in is_counter_slice), key=attrgetter("name")))
    elsewhere = tuple(each for each in others if id(each) not in is_counter_slice)
    counter_sets: dict[str, Mapping[str, int]] = {}
    reason = _duplicate_device(slices)
    if not reason and features.partitionable_devices:
        reason = _collect_counters(sets_from, counter_sets) or _unknown_counter((*slices, *elsewhere), counter_sets)
    if reason:
        return ResourcePool(id_, invalid_reason=reason, present=count, expected=count)
    return ResourcePool(
        id_, slices=slices, elsewhere=elsewhere, counter_sets=counter_sets, present=count, expected=count
    )


def _duplicate_device(slices: Iterable[ResourceSlice]) -> str:
    seen: dict[str, str] = {}
    for each in slices:
        for device in each.devices:
            if device.name in seen:
                return f"device {device.name} is in slice {seen[device.name]} and in slice {each.name}"
            seen[device.name] = each.name
    return ""


def _collect_counters(slices: Iterable[ResourceSlice], into: dict[str, Mapping[str, int]]) -> str:
    for each in sorted(slices, key=attrgetter("name")):
        for name, counters in each.counter_sets:
            if name in into:
                return f"counter set {name} is declared twice, the second time in slice {each.name}"
            into[name] = counters
    return ""


def _unknown_counter(slices: Iterable[ResourceSlice], sets: CounterSets) -> str:
    for each in slices:
        for device in each.devices:
            for consumption in device.consumes:
                counters = sets.get(consumption.counter_set)
                if counters is None:
                    name = consumption.counter_set
                    return f"device {device.name} consumes counter set {name}, which no slice declares"
                for counter in consumption.counters:
                    if counter not in counters:
                        return (
                            f"device {device.name} consumes counter {counter},"
                            f" which counter set {consumption.counter_set} does not have"
                        )
    return ""
