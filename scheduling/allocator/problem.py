"""One allocation on one node, prepared: which devices there are, what each request wants, what is known of both.

Everything here is fixed while the search runs. Answers about a device and a request are computed when first asked for:
what nobody asks for cannot fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.capacity import CapacityFault, consumption
from scheduling.allocator.claims import Claim, Request
from scheduling.allocator.classes import DeviceClass
from scheduling.allocator.constraints import Constraint
from scheduling.allocator.errors import FatalError
from scheduling.allocator.features import Features
from scheduling.allocator.node_selection import Labels
from scheduling.allocator.pools import Pool
from scheduling.allocator.selectors import Selectors
from scheduling.allocator.slices import Device
from scheduling.api.quantities import Quantity

CounterKey = tuple[str, str]
"""Counter set and counter of a pool."""

Amounts = Mapping[str, Quantity]
"""What an allocation takes of each capacity of a device."""

_NOTHING: Amounts = {}


@dataclass(frozen=True, eq=False)
class Plan:
    """What one alternative of a request wants. `devices`: the positions of all its devices in mode All, else None."""

    number: int  # counts the plans of a problem
    request: Request
    device_class: DeviceClass
    wanted: int
    devices: tuple[int, ...] | None
    constraints: tuple[int, ...]  # those of the claim's constraints that cover it


@dataclass(frozen=True, eq=False)
class PlannedClaim:
    """A claim with the plans of its requests, alternatives in their order."""

    claim: Claim
    plans: tuple[tuple[Plan, ...], ...]
    constraints: tuple[Constraint, ...]


class Availability:
    """What claims that are already allocated leave of each pool; remembered per pool, for all nodes."""

    def __init__(self, allocated: AllocatedState) -> None:
        """`allocated` is what is in use."""
        self.allocated = allocated
        self._masks: dict[Pool, int] = {}
        self._counters: dict[Pool, Mapping[CounterKey, int]] = {}

    def held(self, pool: Pool) -> int:
        """The devices of the pool that are in use whole, as a bit mask in the pool's device order."""
        mask = self._masks.get(pool)
        if mask is None:
            held = self.allocated.devices
            mask = sum(1 << index for index, device in enumerate(pool.devices) if device.id in held) if held else 0
            self._masks[pool] = mask
        return mask

    def counters(self, pool: Pool) -> Mapping[CounterKey, int]:
        """What is left of the pool's shared counters; below 0 if more is in use than declared."""
        left = self._counters.get(pool)
        if left is None:
            left = self._counters[pool] = self._count(pool)
        return left

    def _count(self, pool: Pool) -> Mapping[CounterKey, int]:
        left = {(name, counter): total for name, each in pool.counter_sets.items() for counter, total in each.items()}
        for device in chain(pool.devices, (device for each in pool.elsewhere for device in each.devices)):
            if device.id in self.allocated.anyhow:
                for key, amount in device.consumed.items():
                    left[key] -= amount
        return left


class Problem:
    """The claims to allocate and the devices of the node."""

    def __init__(
        self,
        node: str,
        labels: Labels,
        pools: Sequence[Pool],
        *,
        availability: Availability,
        selectors: Selectors,
        features: Features,
    ) -> None:
        """`pools` as gathered for the node. Claims are added with `claims`, in the order in which they are placed."""
        self.node = node
        self.labels = labels
        self.pools = pools
        self.features = features
        self.allocated = availability.allocated
        self.availability = availability
        self.claims: list[PlannedClaim] = []
        self._selectors = selectors
        usable = [pool for pool in pools if pool.usable]
        self.devices: tuple[Device, ...] = (
            usable[0].devices if len(usable) == 1 else tuple(chain.from_iterable(pool.devices for pool in usable))
        )
        self.pool_of: list[Pool] = [pool for pool in usable for _ in pool.devices]
        self._amounts: dict[tuple[int, int], Amounts | None] = {}

    @cached_property
    def held(self) -> int:
        """The devices in use whole by claims that are already allocated, as a bit mask of positions."""
        mask = shift = 0
        for pool in self.pools:
            mask |= self.availability.held(pool) << shift
            shift += len(pool.devices)
        return mask

    def shareable(self, position: int) -> bool:
        """Whether the device at this position allows several allocations."""
        return self.features.consumable_capacity and self.devices[position].allows_multiple

    def amounts(self, plan: Plan, claim: Claim, position: int) -> Amounts | None:
        """What the request takes of the device's capacities; None if the device is not suitable at all.

        Raises `FatalError` if a selector fails or an amount cannot be computed.
        """
        key = (plan.number, position)
        try:
            return self._amounts[key]
        except KeyError:
            amounts = self._judge(plan, claim, self.devices[position])
            self._amounts[key] = amounts
            return amounts

    def known_amounts(self, plan: Plan, position: int) -> Amounts | None:
        """What was found when it was asked for last; None as well if that was never or failed."""
        return self._amounts.get((plan.number, position))

    def _judge(self, plan: Plan, claim: Claim, device: Device) -> Amounts | None:
        request = plan.request
        if not self._selectors.select(device, claim, request, plan.device_class):
            return None
        if device.slice.per_device is True and not device.selects(self.node, self.labels):
            return None
        if not self.features.consumable_capacity or not (device.capacity or request.capacities):
            return _NOTHING
        try:
            taken = consumption(request.capacities, device.capacity, self.features.fractional_capacity_range)
        except CapacityFault as fault:
            path = f"{request.path}.capacity"
            raise FatalError(claim.reference, path, f"on device {device.id}: {fault}") from fault
        return None if isinstance(taken, tuple) else taken
