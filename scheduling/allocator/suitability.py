"""Which plans and devices suit each other, and where a plan fails with an error, before any search.

Nothing is placed yet. Whatever a search places only takes away (devices, counters, capacity), never gives, so what does
not suit here suits nowhere in the search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_

from scheduling.allocator.claims import untolerated
from scheduling.allocator.constraints import lookup
from scheduling.allocator.placement import Placement
from scheduling.allocator.problem import Amounts, Problem, RequestPlan
from scheduling.allocator.reading import FatalError


class Suitability:
    """The devices of each plan, by the plan's number, as masks of positions.

    `devices`: those that suit. `failing`: those on which a selector or an amount fails with an error. `fallible`: plans
    that can end the allocation with an error. `until_refused`: for such a plan in mode All, the devices of which one
    that is busy makes it fail without an error. `in_order`: for such a plan, devices whose order decides about that.
    `shared`: devices that allow several allocations.
    """

    def __init__(self, problem: Problem) -> None:
        """Ask every plan about every device."""
        self.devices: dict[int, int] = {}
        self.failing: dict[int, int] = {}
        self.fallible: set[int] = set()
        self.until_refused: dict[int, int] = {}
        self.in_order: dict[int, int] = {}
        self.shared = mask(each for each in range(len(problem.devices)) if problem.shareable(each))
        self._problem = problem
        self._known: dict[Hashable, tuple[int, int]] = {}
        for index, claim in enumerate(problem.claims):
            constrained: set[int] = set()  # constraints that cover an earlier request of the claim
            for plans in claim.plans:
                for plan in plans:
                    if plan.devices is not None:
                        self._examine_all(index, plan, plan.devices, constrained.isdisjoint(plan.constraints))
                    else:
                        self._examine(index, plan)
                constrained.update(number for plan in plans for number in plan.constraints)

    def relevant(self, plan: RequestPlan) -> int:
        """The devices that a plan can take or ask about."""
        return self.devices[plan.number] | self.failing.get(plan.number, 0)

    def _examine(self, index: int, plan: RequestPlan) -> None:
        """Ask about all devices, unless an equal request has done so.

        What plans take of shared devices is asked for again by those who count shares, so each plan must know it.
        """
        request, claim = plan.request, self._problem.claims[index]
        asked = (
            plan.device_class,
            request.selectors,
            request.tolerations,
            request.admin_access,
            # Written forms, because a policy's default is compared by them (see `capacity`).
            frozenset((name, each.form) for name, each in request.capacities.items()),
            frozenset(claim.constraints[number].attribute for number in plan.constraints),
        )
        known = None if self.shared else self._known.get(asked)
        if known is None:
            known = self._known[asked] = self._ask(index, plan)
        suiting, failing = known
        self.devices[plan.number] = suiting
        if failing:
            self.failing[plan.number] = failing
            self.fallible.add(plan.number)

    def _ask(self, index: int, plan: RequestPlan) -> tuple[int, int]:
        """The devices that suit a plan, and those on which it fails."""
        problem = self._problem
        claim = problem.claims[index].claim
        suiting = failing = 0
        for position in range(len(problem.devices)):
            if not plan.request.admin_access and problem.held >> position & 1:
                continue
            try:
                amounts = problem.amounts(plan, claim, position)
            except FatalError:
                # The search meets the error itself if it gets there; until then the plan proves nothing.
                failing |= 1 << position
                continue
            if amounts is not None and not self._ruled_out(index, plan, position) and self._room(position, amounts):
                suiting |= 1 << position
        return suiting, failing

    def _ruled_out(self, index: int, plan: RequestPlan, position: int) -> bool:
        problem = self._problem
        device = problem.devices[position]
        if device.consumes and not problem.features.partitionable_devices:
            return True
        in_part = self.shared >> position & 1 and device.id in problem.allocated.partly
        if device.consumed and not in_part:
            left = problem.availability.counters(problem.pool_of[position])
            if any(each < 0 for each in left.values()):
                return True
        if problem.features.device_taints and untolerated(device.taints, plan.request.tolerations):
            return True
        constraints = problem.claims[index].constraints
        return any(lookup(device, constraints[number].attribute) is None for number in plan.constraints)

    def _room(self, position: int, amounts: Amounts) -> bool:
        device = self._problem.devices[position]
        held: Mapping[str, int] = self._problem.allocated.capacity.get(device.id, {})
        return all(
            each.nanos + held.get(name, 0) <= device.capacity[name].value.nanos for name, each in amounts.items()
        )

    def _examine_all(self, index: int, plan: RequestPlan, devices: tuple[int, ...], unconstrained: bool) -> None:
        """Find out whether a plan in mode All can be refused by a constraint, which is an error.

        It is one only if every device up to the refused one is free: one that is busy is an ordinary failure.
        `unconstrained`: no earlier request of the claim is covered by a constraint that covers this one.
        """
        self.devices[plan.number] = mask(devices)
        if not unconstrained:
            # What the constraints say depends on devices yet to be chosen, at worst of the very first device.
            self.fallible.add(plan.number)
            self.until_refused[plan.number] = mask(devices[:1])
            self.in_order[plan.number] = mask(devices)
            return
        fitting, refused = self._tried_alone(index, plan, devices)
        if refused:
            self.fallible.add(plan.number)
            self.until_refused[plan.number] = mask(devices[: fitting + 1])
        elif fitting < len(devices):
            self.devices[plan.number] = 0

    def _tried_alone(self, index: int, plan: RequestPlan, devices: tuple[int, ...]) -> tuple[int, bool]:
        """How many of its devices a plan in mode All gets with nothing else placed; whether an error stopped it."""
        problem = self._problem
        placement = Placement(problem)
        for place, position in enumerate(devices):
            amounts = problem.amounts(plan, problem.claims[index].claim, position)
            free = not placement.busy(index, plan) >> position & 1
            try:
                if amounts is None or not free or not placement.place(index, plan, position, amounts):
                    return place, False
            except FatalError:
                # The search meets the error itself if it gets there.
                return place, True
        return len(devices), False


def mask(positions: Iterable[int]) -> int:
    """Positions as bits of a number."""
    return union(1 << position for position in positions)


def union(masks: Iterable[int]) -> int:
    """The positions that are in any of these masks."""
    return reduce(or_, masks, 0)


def positions(devices: int) -> Iterator[int]:
    """The positions in a mask."""
    while devices:
        lowest = devices & -devices
        yield lowest.bit_length() - 1
        devices ^= lowest
