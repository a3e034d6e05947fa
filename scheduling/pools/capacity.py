"""Amounts: rounding to blocks, what is left of pools and devices, and how a need's amounts spread over devices.

Everything is exact, in billionths (`Quantity.nanos`). A need is rounded up to blocks and what is left of a capacity is
rounded down; without a block size nothing is rounded. A device is used whole, or shared by amounts it lists. Whichever
way, it takes its `requests` from its pool once, so a GPU and its partitions exclude each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from scheduling.api.int64 import is_int64
from scheduling.api.quantities import ZERO, Format, Quantity
from scheduling.pools.claim_documents import DeviceAllocation
from scheduling.pools.documents import ResourceCapacity
from scheduling.pools.matching import PooledDevice

DeviceName = tuple[str, str]
"""The names of a pool and of a device in it."""


def round_up(amount: int, block: int) -> int:
    """The least multiple of a block that is not below an amount; a block of 0 rounds nothing."""
    return -(-amount // block) * block if block else amount


def round_down(amount: int, block: int) -> int:
    """The greatest multiple of a block that is not above an amount; a block of 0 rounds nothing."""
    return amount // block * block if block else amount


def block_of(capacity: ResourceCapacity) -> int:
    """The block size in billionths, 0 if amounts are not rounded."""
    return 0 if capacity.block_size is None else capacity.block_size.nanos


def quantity_of(nanos: int, like: Quantity = ZERO) -> Quantity:
    """The amount as a quantity, written in the format of another one."""
    family = like.format if nanos % 10**9 == 0 else Format.DECIMAL_SI
    scale = 0 if nanos % 10**9 == 0 else -9
    unscaled = nanos // 10**9 if scale == 0 else nanos
    return Quantity(nanos, unscaled, scale, not is_int64(unscaled), family)


@dataclass(frozen=True, slots=True)
class TakenAmount:
    """What one capacity gives for a request: the allocated amount, the rest of the request, and what is left."""

    allocated: Quantity
    unsatisfied: Quantity
    left: Quantity


def take(capacity: ResourceCapacity, request: Quantity) -> TakenAmount:
    """Takes a request from a capacity: all of it in blocks, or as many blocks as there are."""
    block = block_of(capacity)
    need, available = round_up(request.nanos, block), round_down(capacity.capacity.nanos, block)
    allocated = min(need, available)
    rest = 0 if need <= available else need - available if available else request.nanos
    left = capacity.capacity.nanos - allocated
    return TakenAmount(
        quantity_of(allocated, request), quantity_of(rest, request), quantity_of(left, capacity.capacity)
    )


@dataclass(slots=True)
class DeviceUse:
    """How one device is used: `users` of any kind, whether one has it whole, and the amounts drawn, in billionths."""

    users: int = 0
    whole: bool = False
    drawn: dict[str, int] = field(default_factory=dict)


class PoolLedger:
    """What is used of some devices and their pools. Starts empty; `apply` adds allocations that exist.

    `exclusive`: devices that only one claim can have, even if it draws an amount and something is left.
    """

    def __init__(self, devices: Iterable[PooledDevice], *, exclusive: Collection[DeviceName] = ()) -> None:
        self.devices = {each.name: each for each in devices}
        self.exclusive = exclusive
        self.uses: dict[DeviceName, DeviceUse] = {name: DeviceUse() for name in self.devices}
        self._of_pools: dict[tuple[str, str], int] = {}

    def apply(self, allocations: Iterable[DeviceAllocation]) -> None:
        """Counts allocations of claims; those of devices that are not here are left out.

        An allocation without an amount that the device lists has the device whole. Amounts round up to blocks.
        """
        for each in allocations:
            name = (each.pool, each.device)
            device = self.devices.get(name)
            if device is None:
                continue
            use = self.uses[name]
            listed = {resource.name: resource for resource in device.device.resources}
            known = [(listed[one.name], one.allocation) for one in each.allocations if one.name in listed]
            if not use.users:
                self.draw_from_pool(device)
            use.users += 1
            use.whole = use.whole or not known
            for resource, amount in known:
                rounded = round_up(amount.nanos, block_of(resource))
                use.drawn[resource.name] = use.drawn.get(resource.name, 0) + rounded

    def draw_from_pool(self, device: PooledDevice, times: int = 1) -> None:
        """Takes a device's requests from its pool, or gives them back with `times` -1."""
        pool = device.pool
        for resource in pool.spec.resources:
            request = device.device.requests.get(resource.name)
            if request is not None:
                key = (pool.metadata.name, resource.name)
                self._of_pools[key] = self._of_pools.get(key, 0) + times * round_up(request.nanos, block_of(resource))

    def is_exclusive(self, name: DeviceName) -> bool:
        """True if nobody else can use a device that is in use."""
        return name in self.exclusive or self.uses[name].whole

    def draw_amount(self, pool: str, resource: str, nanos: int) -> None:
        """Takes an amount from a pool's resource, for devices that are not here."""
        self._of_pools[pool, resource] = self._of_pools.get((pool, resource), 0) + nanos

    def fits_pool(self, device: PooledDevice) -> bool:
        """True if the pool still has what the device requests of it; never for a resource that the pool lacks."""
        return next(self.lacking(device), None) is None

    def lacking(self, device: PooledDevice) -> Iterator[str]:
        """The resources of which the pool has less left than the device requests, or that the pool does not have."""
        pool = device.pool
        listed = {each.name: each for each in pool.spec.resources}
        for name, request in device.device.requests.items():
            resource = listed.get(name)
            if resource is None:
                yield name
                continue
            drawn = self._of_pools.get((pool.metadata.name, name), 0)
            if drawn + round_up(request.nanos, block_of(resource)) > resource.capacity.nanos:
                yield name

    def left_of_pool(self, pool: str, resource: ResourceCapacity) -> Quantity:
        """What is left of a pool's resource; never below zero."""
        drawn = self._of_pools.get((pool, resource.name), 0)
        return quantity_of(max(0, resource.capacity.nanos - drawn), resource.capacity)

    def left_of_device(self, name: DeviceName, resource: ResourceCapacity) -> Quantity:
        """What is left of a device's resource: nothing if somebody has the device whole; never below zero."""
        use = self.uses[name]
        left = 0 if use.whole else max(0, resource.capacity.nanos - use.drawn.get(resource.name, 0))
        return quantity_of(left, resource.capacity)


@dataclass(frozen=True, slots=True)
class AmountDemand:
    """An amount in billionths that some devices must give together; each of them gives at least one block."""

    amount: int
    devices: tuple[DeviceName, ...]


@dataclass(frozen=True, slots=True)
class AmountSupply:
    """What a device has left, in billionths, and its block."""

    left: int
    block: int


def spread(
    demands: Sequence[AmountDemand], supplies: Mapping[DeviceName, AmountSupply]
) -> list[dict[DeviceName, int]] | None:
    """What each device gives to each demand, or None if that cannot be.

    Devices are filled in the order in which the demands name them. Where that fails, the amounts are moved between
    devices until all demands are met; this finds a way whenever there is one, if the devices have one block size.
    """
    left = {name: round_down(max(0, each.left), each.block) for name, each in supplies.items()}
    least = [{name: supplies[name].block if each.amount else 0 for name in each.devices} for each in demands]
    for name, amount in (pair for each in least for pair in each.items()):
        left[name] -= amount
    if any(amount < 0 for amount in left.values()):
        return None
    blocks = {supplies[name].block for each in demands for name in each.devices}
    more: list[dict[DeviceName, int]] = [dict.fromkeys(each.devices, 0) for each in demands]
    for number, demand in enumerate(demands):
        need = demand.amount - sum(least[number].values())
        for name in demand.devices:
            amount = min(round_up(max(0, need), supplies[name].block), left[name])
            more[number][name] += amount
            left[name] -= amount
            need -= amount
        while need > 0:
            path = _path(number, demands, more, left) if len(blocks) == 1 else []
            if not path:
                return None
            spare = (more[other][name] for (_, name), (other, _) in pairwise(path))
            amount = min(left[path[-1][1]], round_up(need, *blocks), *spare)
            _shift(path, amount, more, left)
            need -= amount
    return [{name: least[number][name] + amount for name, amount in each.items()} for number, each in enumerate(more)]


_Path = list[tuple[int, DeviceName]]
"""Demands and the devices that give them more: each takes it from the next demand on its device, the last from what is
left."""


def _path(
    start: int,
    demands: Sequence[AmountDemand],
    more: Sequence[Mapping[DeviceName, int]],
    left: Mapping[DeviceName, int],
) -> _Path:
    """The shortest way to give a demand more, over demands that can move to other devices; empty if there is none."""
    seen: set[DeviceName] = set()
    queue: deque[tuple[int, _Path]] = deque([(start, [])])
    while queue:
        demand, path = queue.popleft()
        for name in demands[demand].devices:
            if name in seen:
                continue
            seen.add(name)
            longer = [*path, (demand, name)]
            if left[name] > 0:
                return longer
            queue.extend((other, longer) for other, gives in enumerate(more) if gives.get(name, 0) > 0)
    return []


def _shift(path: _Path, amount: int, more: Sequence[dict[DeviceName, int]], left: dict[DeviceName, int]) -> None:
    for position, (demand, name) in enumerate(path):
        more[demand][name] += amount
        if position + 1 < len(path):
            more[path[position + 1][0]][name] -= amount
        else:
            left[name] -= amount
