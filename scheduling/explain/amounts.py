"""Capacity and shared counters: the amount a request would take, the amount left, and the holders of the rest.

A capacity is of one device and is shared by the claims that have a share of it; a counter is of a pool and is shared by
the devices that draw on it. The arithmetic is the allocator's; this module only puts its refusals into words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduling.allocator.allocated import Availability, CounterKey
from scheduling.allocator.capacity import CapacityFault, DeviceCapacity, Unsuitable, consumption
from scheduling.allocator.claims import DeviceRequest
from scheduling.allocator.pools import ResourcePool
from scheduling.allocator.slices import PoolID, SliceDevice
from scheduling.api.quantities import Format, from_int, of_json, parse
from scheduling.explain.cluster import Cluster
from scheduling.explain.obstacles import (
    CapacityExhausted,
    CapacityUnfit,
    ClaimHolder,
    CounterExhausted,
    Obstacle,
    Usage,
)


def shares(device: SliceDevice, cluster: Cluster) -> bool:
    """Whether several claims can have the device at the same time."""
    return device.allows_multiple and cluster.features.consumable_capacity


def capacity_unfit(request: DeviceRequest, device: SliceDevice, name: str, cluster: Cluster) -> Obstacle | None:
    """A capacity of which the device can never give the amount requested, even with nothing in use."""
    if not cluster.features.consumable_capacity:
        return None
    try:
        taken = consumption(request.capacities, device.capacity, cluster.features.fractional_capacity_range)
    except CapacityFault as fault:
        return CapacityUnfit((name,), 1, "", "", str(fault))
    if isinstance(taken, tuple):
        why, capacity = taken
        asked = request.capacities.get(capacity)
        reason = "the device has none" if why is Unsuitable.UNKNOWN else _policy(device.capacity[capacity])
        return CapacityUnfit((name,), 1, capacity, asked.text if asked is not None else "", reason)
    for capacity, amount in taken.items():
        there = device.capacity[capacity]
        if amount > there.value:
            return CapacityUnfit((name,), 1, capacity, amount.text, f"the device has {there.value.text}")
    return None


def _policy(capacity: DeviceCapacity) -> str:
    """What the device's policy allows, in words."""
    policy = capacity.policy
    if policy is None:
        return "its policy does not allow it"
    if policy.range is not None:
        limits = []
        if policy.range.minimum is not None:
            limits.append(f"from {policy.range.minimum.text}")
        if policy.range.maximum is not None:
            limits.append(f"to {policy.range.maximum.text}")
        if policy.range.step is not None:
            limits.append(f"in steps of {policy.range.step.text}")
        return f"the device gives shares {' '.join(limits)}"
    return f"the device gives shares of {', '.join(value.text for value in policy.values)}"


def capacity_exhausted(request: DeviceRequest, device: SliceDevice, name: str, cluster: Cluster) -> Iterator[Obstacle]:
    """The capacities with too little left for a share; of a device that is not ``capacity_unfit``."""
    if not cluster.features.consumable_capacity:
        return
    in_use = cluster.allocated.capacity.get(device.id, {})
    taken = consumption(request.capacities, device.capacity, cluster.features.fractional_capacity_range)
    if isinstance(taken, tuple):
        return
    for capacity, needed in taken.items():
        there = device.capacity[capacity]
        used = in_use.get(capacity, 0)
        if used + needed.nanos <= there.value.nanos:
            continue
        free = quantity_of(there.value.nanos - used, there.value.format)
        amounts = (needed.text, free, there.value.text)
        yield CapacityExhausted((name,), 1, capacity, *amounts, tuple(_capacity_users(device, capacity, cluster)))


def _capacity_users(device: SliceDevice, capacity: str, cluster: Cluster) -> Iterator[Usage]:
    for holding in cluster.holdings.get(device.id, ()):
        if capacity in holding.consumed:
            yield Usage(device.name, of_json(holding.consumed[capacity]).text, holding.holder)


class SharedCounters:
    """The shared counters of pools, worked out once for all devices that draw on them."""

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is worked out yet."""
        self._cluster = cluster
        self._availability = Availability(cluster.allocated)
        self._users: dict[tuple[PoolID, CounterKey], tuple[Usage, ...]] = {}

    def exhausted(self, device: SliceDevice, name: str, pool: ResourcePool) -> Iterator[Obstacle]:
        """The counters with too little left for the device, or overdrawn already."""
        in_shares = shares(device, self._cluster) and device.id in self._cluster.allocated.partly
        if not device.consumed or in_shares:
            return
        for (counter_set, counter), free in self.left(pool).items():
            wanted = device.consumed.get((counter_set, counter), 0)
            # An overdrawn counter keeps every device of the pool away that draws on any counter at all.
            if wanted <= free or (wanted == 0 and free >= 0):
                continue
            total = pool.counter_sets[counter_set][counter]
            amounts = (_text(wanted, total), _text(free, total), _text(total, total))
            users = self.users(pool, (counter_set, counter))
            yield CounterExhausted((name,), 1, pool.id.pool, counter_set, counter, *amounts, users)

    def left(self, pool: ResourcePool) -> Mapping[CounterKey, int]:
        """The rest of a pool's counters, in billionths."""
        return self._availability.counters(pool)

    def users(self, pool: ResourcePool, counter: CounterKey) -> tuple[Usage, ...]:
        """Who draws on a counter of a pool, and how much."""
        key = (pool.id, counter)
        if key not in self._users:
            self._users[key] = tuple(self._find_users(pool, counter))
        return self._users[key]

    def _find_users(self, pool: ResourcePool, counter: CounterKey) -> Iterator[Usage]:
        for device in (device for each in (*pool.slices, *pool.elsewhere) for device in each.devices):
            amount = device.consumed.get(counter, 0) if device.id in self._cluster.allocated.anyhow else 0
            if amount:
                holders = [holding.holder for holding in self._cluster.holdings.get(device.id, ())]
                yield Usage(device.name, _text(amount, amount), holders[0] if holders else ClaimHolder(""))


_MEBI = 10**9 << 20


def _text(nanos: int, total: int) -> str:
    """An amount of a counter as a quantity: binary where the counter is in whole Mi, as memory is written."""
    return quantity_of(nanos, Format.BINARY_SI if total % _MEBI == 0 else Format.DECIMAL_SI)


def quantity_of(nanos: int, form: Format) -> str:
    """A quantity of that many billionths as Kubernetes writes it."""
    return (parse(f"{nanos}n") if nanos % 10**9 else from_int(nanos // 10**9, form)).text
