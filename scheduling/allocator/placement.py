"""The devices placed so far in a search, and what they take from the others.

Placing is all or nothing, and taking back restores exactly what was before: no counter, share or constraint remembers a
device that is no longer placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduling.allocator.allocated import CounterKey
from scheduling.allocator.claims import untolerated
from scheduling.allocator.constraints import REFUSED, START, State
from scheduling.allocator.pools import ResourcePool
from scheduling.allocator.problem import Amounts, PlannedClaim, Problem, RequestPlan
from scheduling.allocator.reading import FatalError
from scheduling.allocator.slices import SliceDevice


@dataclass(frozen=True, slots=True)
class Placed:
    """One device for one request. `amounts` is None unless the device is shared."""

    plan: RequestPlan
    position: int
    device: SliceDevice
    amounts: Amounts | None
    consumed: Mapping[CounterKey, int] | None
    before: tuple[State, ...]  # the states of the claim's constraints before this device


class Placement:
    """What a search has placed. Positions are those of the problem's devices; masks have one bit for each."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is placed yet."""
        self._problem = problem
        claims = problem.claims
        self.placed: list[list[Placed]] = [[] for _ in claims]
        self.marked = 0  # devices that any claim has for itself
        self.marked_by = [0] * len(claims)
        self.states: list[tuple[State, ...]] = [(START,) * len(each.constraints) for each in claims]
        self.counters: dict[ResourcePool, dict[CounterKey, int]] = {}
        self.taken: dict[int, dict[str, int]] = {}  # position of a shared device -> capacity -> nano-units
        self.shares: dict[int, int] = {}  # position of a shared device -> number of shares

    def busy(self, claim: int, plan: RequestPlan) -> int:
        """The devices that this request cannot have: with admin access only those that its own claim has."""
        if plan.request.admin_access:
            return self.marked_by[claim]
        return self.marked | self._problem.held

    def place(self, index: int, plan: RequestPlan, position: int, amounts: Amounts) -> bool:
        """Place a device that is not busy; whether it could be placed.

        In mode All a device that a constraint refuses is a mistake of the claim: raises `FatalError`.
        """
        problem = self._problem
        claim = problem.claims[index]
        device = problem.devices[position]
        shared = problem.shareable(position)
        if problem.features.device_taints and device.taints and untolerated(device.taints, plan.request.tolerations):
            return False
        consumed = self._consumption(position, device, shared)
        if consumed is None or not self._counters_allow(position, consumed):
            return False
        states = self._constrained(index, claim, plan, device)
        if states is None or not self._capacity_allows(position, device, amounts):
            return False
        before = self.states[index]
        self.states[index] = states
        if consumed:
            self._take_counters(position, consumed, 1)
        if shared:
            self._share(position, amounts, 1)
        else:
            self.marked |= 1 << position
            self.marked_by[index] |= 1 << position
        self.placed[index].append(Placed(plan, position, device, amounts if shared else None, consumed, before))
        return True

    def undo(self, index: int) -> None:
        """Take the last device of the claim back."""
        placed = self.placed[index].pop()
        self.states[index] = placed.before
        if placed.consumed:
            self._take_counters(placed.position, placed.consumed, -1)
        if placed.amounts is not None:
            self._share(placed.position, placed.amounts, -1)
            return
        bit = 1 << placed.position
        self.marked_by[index] &= ~bit
        if not any(mask & bit for mask in self.marked_by):
            self.marked &= ~bit

    def left(self, pool: ResourcePool, key: CounterKey) -> int:
        """How much of a pool's counter is left."""
        left = self.counters.get(pool)
        return (self._problem.availability.counters(pool) if left is None else left)[key]

    def _consumption(self, position: int, device: SliceDevice, shared: bool) -> Mapping[CounterKey, int] | None:
        """The shared counters that placing the device takes; None if it cannot be placed at all.

        A shared device takes its counters once, with its first share.
        """
        if not device.consumes:
            return {}
        if not self._problem.features.partitionable_devices:
            return None
        if shared and (position in self.shares or device.id in self._problem.allocated.partly):
            return {}
        return device.consumed

    def _counters_allow(self, position: int, consumed: Mapping[CounterKey, int]) -> bool:
        """One overdrawn counter anywhere in a pool blocks every device of it that takes counters, as upstream."""
        if not consumed:
            return True
        left = self._left(position)
        if any(left[key] < amount for key, amount in consumed.items()):
            return False
        return not any(value < 0 for value in left.values())

    def _left(self, position: int) -> dict[CounterKey, int]:
        pool = self._problem.pool_of[position]
        left = self.counters.get(pool)
        if left is None:
            left = self.counters[pool] = dict(self._problem.availability.counters(pool))
        return left

    def _take_counters(self, position: int, consumed: Mapping[CounterKey, int], sign: int) -> None:
        left = self._left(position)
        for key, amount in consumed.items():
            left[key] -= sign * amount

    def _constrained(
        self, index: int, claim: PlannedClaim, plan: RequestPlan, device: SliceDevice
    ) -> tuple[State, ...] | None:
        if not plan.constraints:
            return self.states[index]
        states = list(self.states[index])
        for number in plan.constraints:
            constraint = claim.constraints[number]
            state = constraint.add(states[number], device)
            if state is REFUSED:
                if plan.devices is not None:
                    refused = f"the constraint on {constraint.attribute} refuses it"
                    message = f"mode All includes device {device.id}, but {refused}"
                    raise FatalError(claim.claim.reference, f"spec.devices.constraints[{number}]", message)
                return None
            states[number] = state
        return tuple(states)

    def _capacity_allows(self, position: int, device: SliceDevice, amounts: Amounts) -> bool:
        if not amounts:
            return True
        held = self._problem.allocated.capacity.get(device.id)
        taken = self.taken.get(position)
        for name, amount in amounts.items():
            total = amount.nanos
            if held is not None:
                total += held.get(name, 0)
            if taken is not None:
                total += taken.get(name, 0)
            if total > device.capacity[name].value.nanos:
                return False
        return True

    def _share(self, position: int, amounts: Amounts, sign: int) -> None:
        count = self.shares.get(position, 0) + sign
        if not count:
            del self.shares[position], self.taken[position]
            return
        self.shares[position] = count
        taken = self.taken.setdefault(position, {})
        for name, amount in amounts.items():
            taken[name] = taken.get(name, 0) + sign * amount.nanos
