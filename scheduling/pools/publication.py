"""What a cluster publishes, as pools: ResourceSlices and allocated ResourceClaims as DevicePools with what is left.

Which slices make a pool, and which pool a node can use, is the allocator's judgement (`gather_pools`), so a device that
is free here is one that the allocator can give. A pool of one name that several nodes see differently is listed once
for each of these sights. What is left of counters and capacities is the allocator's arithmetic too.

Attributes lose their domains, because constraints of pools read one flat map. `FlatNames` says which name stands for
which, the same for all devices of a driver. Not published, because pools have no words for them: attributes with lists,
values a policy allows one by one, and which nodes a selector chooses (`nodes` lists those that are known).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduling.allocator.allocated import AllocatedState, Availability, allocation_results, device_of
from scheduling.allocator.capacity import DeviceCapacity
from scheduling.allocator.claims import prevents
from scheduling.allocator.constraints import scalar
from scheduling.allocator.pools import Features, ResourcePool, SliceIndex, gather_pools, node_identity
from scheduling.allocator.reading import Object, Part
from scheduling.allocator.slices import DeviceID, PoolID, ResourceSlice, SliceDevice
from scheduling.api.quantities import Format, Quantity, from_int, parse
from scheduling.pools.claim_documents import ResourceAllocation
from scheduling.pools.documents import (
    API_VERSION,
    DevicePool,
    DevicePoolSpec,
    DocumentMetadata,
    PoolAttribute,
    PoolDevice,
    ResourceCapacity,
    SemVer,
)
from scheduling.pools.published import AmountLeft, DeviceUser, PooledState, PublishedDevice, PublishedPool

STANDARD_DOMAIN = "resource.kubernetes.io"
"""The domain of attributes that mean the same for all drivers, such as pcieRoot."""
_MEBI = 10**9 << 20


def published_pools(
    slices: Iterable[Object] | SliceIndex,
    claims: Iterable[Object] = (),
    nodes: Iterable[Object] = (),
    features: Features = Features(),  # noqa: B008 - a frozen value
) -> tuple[PublishedPool, ...]:
    """All pools that slices make: by node, those of no single node last, then by driver and name.

    All objects are v1, as plain data; slices with the taints that rules add. Nodes matter for selectors; one that only
    a slice names needs no object. Raises `FatalError` for an object that is not of its shape.
    """
    index = slices if isinstance(slices, SliceIndex) else SliceIndex(slices)
    return _Publication(index, tuple(claims), features).pools(tuple(nodes))


class FlatNames:
    """The names that attributes and capacities of one driver's devices have in pools.

    `domain/id` becomes `id`. Where two domains have one id, the standard domain keeps it, else the driver's own; the
    others keep their full names.
    """

    def __init__(self, driver: str, names: Iterable[str]) -> None:
        """`names` as the driver's slices write them; one without a domain is of the driver's."""
        self.driver = driver
        full = {name if "/" in name else f"{driver}/{name}" for name in names}
        self.full: dict[str, str] = {}
        """Flat name -> full name."""
        for name in sorted(full, key=self._rank):
            identifier = name.partition("/")[2]
            self.full[name if identifier in self.full else identifier] = name
        self._flat = {name: flat for flat, name in self.full.items()}

    def _rank(self, name: str) -> tuple[int, str]:
        domain = name.partition("/")[0]
        return (0 if domain == STANDARD_DOMAIN else 1 if domain == self.driver else 2, name)

    def flat(self, name: str) -> str:
        """The flat name of an attribute or capacity as the slices write it."""
        return self._flat[name if "/" in name else f"{self.driver}/{name}"]


def quantity_text(nanos: int) -> Quantity:
    """A quantity of that many billionths; binary in whole Mi, as memory is written."""
    if nanos % 10**9:
        return parse(f"{nanos}n")
    return from_int(nanos // 10**9, Format.BINARY_SI if nanos and nanos % _MEBI == 0 else Format.DECIMAL_SI)


@dataclass(slots=True)
class _Sight:
    """A pool as some nodes see it, equally."""

    pool: ResourcePool
    slices: tuple[ResourceSlice, ...]
    devices: tuple[SliceDevice, ...]
    nodes: list[str]


class _Publication:
    """The pools of one index and one set of claims."""

    def __init__(self, index: SliceIndex, claims: Sequence[Object], features: Features) -> None:
        self._index = index
        self._features = features
        held = [claim for claim in claims if allocation_results(claim)]
        self._allocated = AllocatedState.of_claims(held)
        self._availability = Availability(self._allocated)
        self._users = _users(held)
        self._named: set[str] = set()

    @cached_property
    def _names(self) -> dict[str, tuple[FlatNames, FlatNames]]:
        """For each driver the names of attributes and of capacities."""
        found: dict[str, tuple[set[str], set[str]]] = {}
        for each in self._index.all:
            attributes, capacities = found.setdefault(each.pool.driver, (set(), set()))
            for device in each.devices:
                attributes.update(device.attributes)
                capacities.update(device.capacity)
        return {driver: (FlatNames(driver, one), FlatNames(driver, two)) for driver, (one, two) in found.items()}

    def pools(self, nodes: Sequence[Object]) -> tuple[PublishedPool, ...]:
        """All pools, in their order."""
        sights = sorted(self._sights(nodes), key=lambda each: (each.pool.id, each.nodes))
        found = [self._published(sight) for sight in sights]
        return tuple(sorted(found, key=lambda each: (each.node is None, each.node or "", each.driver, each.name)))

    def _sights(self, nodes: Sequence[Object]) -> Iterable[_Sight]:
        known = {node_identity(node)[0]: node for node in nodes}
        for each in self._index.all:
            if each.nodes.name:
                known.setdefault(each.nodes.name, {"metadata": {"name": each.nodes.name}})
        found: dict[object, _Sight] = {}
        # Without any node there are still pools that every node reaches.
        for name, node in sorted(known.items()) or [("", {"metadata": {"name": ""}})]:
            labels = node_identity(node)[1]
            for pool in gather_pools(node, self._index, self._features):
                slices = pool.slices or self._slices_at(pool.id, name, labels)
                devices = tuple(
                    device
                    for each in slices
                    for device in each.devices
                    if each.per_device is not True or device.selects(name, labels)
                )
                key = (pool.id, tuple(id(each) for each in slices), tuple(each.name for each in devices))
                sight = found.setdefault(key, _Sight(pool, slices, devices, []))
                sight.nodes += [name] if name else []
        return found.values()

    def _slices_at(self, pool: PoolID, node: str, labels: Mapping[str, str]) -> tuple[ResourceSlice, ...]:
        """The newest slices that the node sees of a pool that is not usable."""
        seen = [each for each in self._index.for_node(node) if each.pool == pool and each.selects(node, labels)]
        newest = max(each.generation for each in seen)
        return tuple(each for each in seen if each.generation == newest)

    def _published(self, sight: _Sight) -> PublishedPool:
        pool = sight.pool
        fault = pool.invalid_reason
        if pool.is_incomplete:
            fault = f"incomplete: {pool.present} of {pool.expected} slices exist"
        bound = {each.nodes.name for each in sight.slices}
        node = sight.nodes[0] if len(bound) == 1 and None not in bound else None
        resources = () if fault else tuple(self._counters(pool))
        devices = tuple(self._device(each, pool, fault) for each in sight.devices)
        spec = DevicePoolSpec(
            node_name=node,
            driver=pool.id.driver,
            resources=tuple(ResourceCapacity(each.name, each.capacity) for each in resources),
            devices=tuple(each.document for each in devices),
        )
        metadata = DocumentMetadata(name=self._unique(pool.id, node))
        document = DevicePool(API_VERSION, "DevicePool", metadata, spec)
        return PublishedPool(
            pool.id.driver, pool.id.pool, document, node, tuple(sight.nodes), devices, resources, fault
        )

    def _unique(self, pool: PoolID, node: str | None) -> str:
        plain = pool.pool.replace("/", ".")
        names = [plain, f"{plain}.{pool.driver}", f"{plain}.{pool.driver}.{node or 'network'}"]
        name = next((each for each in names if each not in self._named), names[-1])
        number = 2
        while name in self._named:
            name, number = f"{names[-1]}.{number}", number + 1
        self._named.add(name)
        return name

    def _counters(self, pool: ResourcePool) -> Iterator[AmountLeft]:
        left = self._availability.counters(pool)
        for set_name, counters in sorted(pool.counter_sets.items()):
            for counter, total in sorted(counters.items()):
                name = _counter_name(pool, set_name, counter)
                yield AmountLeft(name, quantity_text(total), quantity_text(max(0, left[set_name, counter])))

    def _device(self, device: SliceDevice, pool: ResourcePool, fault: str) -> PublishedDevice:
        attributes, capacities = self._names[device.id.driver]
        amounts = tuple(self._amount(device, name, capacities.flat(name)) for name in sorted(device.capacity))
        document = PoolDevice(
            device.name,
            tuple(_attributes(device, attributes)),
            {} if fault else {_counter_name(pool, *key): quantity_text(used) for key, used in device.consumed.items()},
            tuple(ResourceCapacity(each.name, each.capacity, each.block) for each in amounts),
        )
        users = tuple(self._user(device, each, capacities) for each in self._users.get(device.id, ()))
        state, lacking = self._state(device, pool, fault)
        names = {attributes.flat(name): attributes.full[attributes.flat(name)] for name in device.attributes}
        return PublishedDevice(
            document, state, users, amounts, lacking, names, shareable=device.allows_multiple, source=device
        )

    def _state(self, device: SliceDevice, pool: ResourcePool, fault: str) -> tuple[PooledState, tuple[str, ...]]:
        if device.id in self._allocated.devices:
            return PooledState.TAKEN, ()
        if device.id in self._allocated.partly:
            return PooledState.SHARED, ()
        if fault:
            return PooledState.UNUSABLE, ()
        if self._features.device_taints and any(prevents(taint) for taint in device.taints):
            return PooledState.TAINTED, ()
        left = self._availability.counters(pool) if device.consumed else {}
        # An overdrawn counter keeps every device of the pool away that takes any.
        lacking = [key for key, free in left.items() if device.consumed.get(key, 0) > free or free < 0]
        if lacking:
            return PooledState.BLOCKED, tuple(_counter_name(pool, *key) for key in sorted(lacking))
        return PooledState.FREE, ()

    def _amount(self, device: SliceDevice, name: str, flat: str) -> AmountLeft:
        capacity = device.capacity[name]
        used = self._allocated.capacity.get(device.id, {}).get(name, 0)
        whole = device.id in self._allocated.devices
        left = 0 if whole else max(0, capacity.value.nanos - used)
        block = _block(capacity) if device.allows_multiple else capacity.value
        return AmountLeft(flat, capacity.value, quantity_text(left), block if block is not None and block else None)

    def _user(self, device: SliceDevice, held: _Held, capacities: FlatNames) -> DeviceUser:
        listed = {name: capacities.flat(name) for name in device.capacity}
        amounts = tuple(
            ResourceAllocation(listed[name], amount) for name, amount in sorted(held.consumed.items()) if name in listed
        )
        return DeviceUser(held.claim, held.pods, held.admin, held.shared, amounts)


@dataclass(frozen=True, slots=True)
class _Held:
    """One entry of a claim's allocation."""

    claim: str
    pods: tuple[str, ...]
    admin: bool
    shared: bool
    consumed: Mapping[str, Quantity]


def _users(claims: Iterable[Object]) -> dict[DeviceID, list[_Held]]:
    found: dict[DeviceID, list[_Held]] = {}
    for claim in claims:
        whole = Part.whole("ResourceClaim", claim)
        namespace = whole.owner.namespace or "default"
        users = whole.part("status").parts("reservedFor")
        pods = tuple(f"{namespace}/{each.string('name')}" for each in users if each.string("resource") == "pods")
        for result in allocation_results(claim):
            shared = bool(result.string("shareID"))
            consumed = result.quantities("consumedCapacity") if shared else {}
            held = _Held(f"{namespace}/{whole.owner.name}", pods, result.boolean("adminAccess"), shared, consumed)
            found.setdefault(device_of(result), []).append(held)
    return found


def _attributes(device: SliceDevice, names: FlatNames) -> Iterator[PoolAttribute]:
    """The attributes with one value each; true and false are texts, because pools have no other word for them."""
    for name, attribute in sorted(device.attributes.items()):
        typed = scalar(attribute)
        if typed is None:
            continue
        kind, value = typed
        flat = names.flat(name)
        if kind == "int":
            yield PoolAttribute(flat, integer=int(value))
        elif kind == "version":
            yield PoolAttribute(flat, version=SemVer(str(value)))
        else:
            yield PoolAttribute(flat, string=str(value).lower() if kind == "bool" else str(value))


def _counter_name(pool: ResourcePool, counter_set: str, counter: str) -> str:
    return counter if len(pool.counter_sets) == 1 else f"{counter_set}.{counter}"


def _block(capacity: DeviceCapacity) -> Quantity | None:
    """The step of a policy's range."""
    policy = capacity.policy
    return None if policy is None or policy.range is None else policy.range.step
