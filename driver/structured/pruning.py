"""Leaving out parts of a search that cannot succeed.

Two means, both sound with respect to the choice, the verdict and the errors of the plain search:

- *Learned conflicts.* A part of the search that failed fails again in every situation that differs only by devices that
  are interchangeable: equal in everything that any request, constraint or counter of this allocation can see. A
  situation is therefore written down with the number of busy devices of each kind instead of their names.
- *Looking ahead.* The requests still to be placed must each find enough free devices that today's constraints allow,
  all together must find enough different ones (Hall's condition, on the sets that include each other), enough distinct
  values, and enough of every shared counter. Only requests that cannot fail with an error take part, and none that
  comes after one that can: the plain search would have reported that error, or not, and so must this one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from driver.structured.attributes import lookup
from driver.structured.claims import RESULTS_MAX
from driver.structured.constraints import REFUSED, START, State
from driver.structured.errors import FatalError
from driver.structured.placement import Placement
from driver.structured.pools import Pool
from driver.structured.problem import CounterKey, Plan, Problem
from driver.structured.taints import untolerated

_Outcome = TypeVar("_Outcome")

_LEARNED_MAX = 200_000
"""Situations that one search remembers, some 200 bytes each."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A point of the search, as far as its future depends on it."""

    index: int
    number: int
    plan: Plan
    count: int
    start: int
    signature: Hashable


@dataclass(frozen=True, slots=True)
class _Need:
    """A request still to be placed: at least `count` devices, all of them among `devices` (a mask)."""

    count: int
    devices: int
    plans: tuple[Plan, ...]
    exclusive: bool  # its devices are not shared, neither by several allocations nor by admin access


@dataclass(frozen=True, slots=True)
class _Kind:
    """Interchangeable devices: a mask, and what each takes of its pool's counters."""

    devices: int
    pool: Pool
    consumed: dict[CounterKey, int]


class Pruning(Generic[_Outcome]):
    """What one search has learned so far, and its view of what lies ahead."""

    def __init__(self, problem: Problem, placement: Placement, failed: _Outcome) -> None:
        """`failed` is the outcome of a part that looking ahead rules out."""
        self._problem = problem
        self._placement = placement
        self._failed = failed
        self._learned: dict[Situation, _Outcome] = {}
        self._allowed: dict[tuple[int, int, State], int] = {}
        self._suitable: dict[int, int] = {}
        self._fallible: set[int] = set()  # plans that can make the allocation fail with an error
        self._failing: dict[int, int] = {}  # the devices on which a plan's selectors or amounts fail, as a mask
        self._until_refused: dict[int, int] = {}  # the devices that must be free for a plan in mode All to be an error
        self._in_order = 0  # devices whose place in the order decides whether there is an error
        for index, claim in enumerate(problem.claims):
            for plan in (each for plans in claim.plans for each in plans):
                self._examine(index, plan)
        self._shared = sum(1 << each for each in range(len(problem.devices)) if problem.shareable(each))
        self._kinds = self._sort_kinds()
        self._counted = [kind for kind in self._kinds if kind.consumed]
        self._groups = [kind.devices for kind in self._kinds if kind.devices & (kind.devices - 1)]
        self._singles = _mask(range(len(problem.devices))) & ~sum(self._groups)
        self._may_exceed = any(
            sum(max(plan.wanted for plan in plans) for plans in claim.plans) > RESULTS_MAX for claim in problem.claims
        )

    def situation(self, index: int, number: int, plan: Plan, count: int, start: int) -> Situation:
        """The present situation, about to place the `count`-th device of a plan on positions from `start` on."""
        placement = self._placement
        marked, own = placement.marked, placement.marked_by[index]
        before = (1 << start) - 1
        signature = (
            len(placement.placed[index]),
            marked & self._singles,
            own & self._singles,
            tuple([((marked & each & before).bit_count(), (marked & each).bit_count()) for each in self._groups]),
            tuple([(own & each).bit_count() for each in self._groups]) if own else None,
            placement.states[index],
            frozenset([(position, *taken.values()) for position, taken in placement.taken.items()]),
            tuple([tuple(left.values()) for left in placement.counters.values()]),
        )
        return Situation(index, number, plan, count, start, signature)

    def answer(self, situation: Situation) -> _Outcome | None:
        """How the search goes on from here, if that is known without going on."""
        known = self._learned.get(situation)
        if known is not None:
            return known
        if not self._may_exceed and self._hopeless(situation):
            return self._failed
        return None

    def learn(self, situation: Situation, outcome: _Outcome) -> None:
        """Remember that the search from this situation on failed, and how."""
        if len(self._learned) < _LEARNED_MAX:
            self._learned[situation] = outcome

    def _examine(self, index: int, plan: Plan) -> None:
        """Find the devices that suit a plan while nothing is placed yet, and those on which it fails with an error."""
        problem = self._problem
        claim = problem.claims[index].claim
        if plan.devices is not None:
            self._examine_all(index, plan, plan.devices)
            return
        mask = 0
        for position, device in enumerate(problem.devices):
            if not plan.request.admin_access and problem.held >> position & 1:
                continue
            try:
                amounts = problem.amounts(plan, claim, position)
            except FatalError:
                # The search meets the error itself if it gets there; until then the plan is no ground for conclusions.
                self._fallible.add(plan.number)
                self._failing[plan.number] = self._failing.get(plan.number, 0) | 1 << position
                continue
            if amounts is None or self._ruled_out(index, plan, position):
                continue
            held = problem.allocated.capacity.get(device.id, {})
            if all(
                each.nanos + held.get(name, 0) <= device.capacity[name].value.nanos for name, each in amounts.items()
            ):
                mask |= 1 << position
        self._suitable[plan.number] = mask

    def _examine_all(self, index: int, plan: Plan, devices: tuple[int, ...]) -> None:
        """Find out whether a plan in mode All can be refused by a constraint, which is an error.

        It is one only if every device up to the refused one is free: one that is busy is an ordinary failure.
        """
        self._suitable[plan.number] = _mask(devices)
        claim = self._problem.claims[index]
        earlier = claim.plans[: next(n for n, plans in enumerate(claim.plans) if plan in plans)]
        if any(not set(each.constraints).isdisjoint(plan.constraints) for plans in earlier for each in plans):
            # What the constraints say depends on devices yet to be chosen, at worst of the very first device.
            self._fallible.add(plan.number)
            self._until_refused[plan.number] = _mask(devices[:1])
            self._in_order |= _mask(devices)
            return
        fitting, refused = self._tried_alone(index, plan, devices)
        if refused:
            self._fallible.add(plan.number)
            self._until_refused[plan.number] = _mask(devices[: fitting + 1])
        elif fitting < len(devices):
            self._suitable[plan.number] = 0

    def _tried_alone(self, index: int, plan: Plan, devices: tuple[int, ...]) -> tuple[int, bool]:
        """How many of its devices a plan in mode All gets with nothing else placed; whether an error stopped it.

        Whatever else is placed only takes away from counters, capacity and free devices.
        """
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

    def _ruled_out(self, index: int, plan: Plan, position: int) -> bool:
        problem = self._problem
        device = problem.devices[position]
        if device.consumes and not problem.features.partitionable_devices:
            return True
        if problem.features.device_taints and untolerated(device.taints, plan.request.tolerations):
            return True
        constraints = problem.claims[index].constraints
        return any(lookup(device, constraints[number].attribute) is None for number in plan.constraints)

    def _sort_kinds(self) -> list[_Kind]:
        """The devices by what this allocation can see of them. Devices that can be shared are kinds of their own."""
        problem = self._problem
        masks: dict[Hashable, int] = {}
        first: dict[Hashable, int] = {}
        for position in range(len(problem.devices)):
            profile = self._profile(position)
            masks[profile] = masks.get(profile, 0) | 1 << position
            first.setdefault(profile, position)
        return [
            _Kind(mask, problem.pool_of[first[profile]], dict(problem.devices[first[profile]].consumed))
            for profile, mask in masks.items()
        ]

    def _profile(self, position: int) -> Hashable:
        problem = self._problem
        device = problem.devices[position]
        if problem.shareable(position):
            return position
        plans = [plan for claim in problem.claims for plans in claim.plans for plan in plans]
        values = [
            _comparable(lookup(device, constraint.attribute))
            for claim in problem.claims
            for constraint in claim.constraints
        ]
        return (
            tuple(self._suitable[plan.number] >> position & 1 for plan in plans),
            tuple(mask >> position & 1 for mask in (*self._failing.values(), *self._until_refused.values())),
            position if self._in_order >> position & 1 else None,
            problem.held >> position & 1,
            tuple(values),
            tuple(sorted(device.consumed.items())),
            id(problem.pool_of[position]) if device.consumes else None,
        )

    def _hopeless(self, situation: Situation) -> bool:
        needs = list(self._needs(situation))
        for need in needs:
            if need.devices.bit_count() < need.count:
                return True
        exclusive = [need for need in needs if need.exclusive]
        for outer in exclusive:
            inside = sum(need.count for need in exclusive if need.devices & ~outer.devices == 0)
            if inside > outer.devices.bit_count():
                return True
        union = 0
        for need in exclusive:
            union |= need.devices
        if sum(need.count for need in exclusive) > union.bit_count():
            return True
        return self._too_few_values(situation.index, needs) or self._too_few_counters(needs)

    def _needs(self, situation: Situation) -> Iterator[_Need]:
        """What has to be placed from here on, up to the first request that can fail with an error."""
        claims = self._problem.claims
        if situation.plan.number in self._fallible:
            return
        free = self._free(situation.index, situation.plan) & ~((1 << situation.start) - 1)
        yield self._need(situation.plan.wanted - situation.count, free, (situation.plan,))
        for index in range(situation.index, len(claims)):
            first = situation.number + 1 if index == situation.index else 0
            for plans in claims[index].plans[first:]:
                if all(self._fails_at_once(index, plan) for plan in plans):
                    yield _Need(1, 0, (), exclusive=False)
                    return
                if any(plan.number in self._fallible for plan in plans):
                    return
                yield self._choice(index, plans)

    def _fails_at_once(self, index: int, plan: Plan) -> bool:
        """Whether a plan in mode All fails before a constraint can make it an error."""
        return bool(self._until_refused.get(plan.number, 0) & self._placement.busy(index, plan))

    def _choice(self, index: int, plans: Sequence[Plan]) -> _Need:
        """The least that a request needs, whichever of its alternatives is taken."""
        count: int | None = None
        devices = 0
        feasible: list[Plan] = []
        for plan in plans:
            free = self._free(index, plan)
            possible = free.bit_count() >= max(plan.wanted, 1 if plan.devices is not None else 0)
            if possible:
                count = plan.wanted if count is None else min(count, plan.wanted)
                devices |= free
                feasible.append(plan)
        if count is None:
            return _Need(1, 0, (), exclusive=False)
        return self._need(count, devices, tuple(feasible))

    def _need(self, count: int, devices: int, plans: tuple[Plan, ...]) -> _Need:
        exclusive = not devices & self._shared and not any(plan.request.admin_access for plan in plans)
        return _Need(count, devices, plans, exclusive)

    def _free(self, index: int, plan: Plan) -> int:
        """The devices that this plan could still have, one by one."""
        placement = self._placement
        mask = self._suitable[plan.number] & ~placement.busy(index, plan)
        states = placement.states[index]
        for number in plan.constraints:
            if states[number] is not START:
                mask &= self._allowed_by(index, number, states[number])
        return mask

    def _allowed_by(self, index: int, number: int, state: State) -> int:
        key = (index, number, state)
        mask = self._allowed.get(key)
        if mask is None:
            constraint = self._problem.claims[index].constraints[number]
            mask = sum(
                1 << position
                for position, device in enumerate(self._problem.devices)
                if constraint.add(state, device) is not REFUSED
            )
            self._allowed[key] = mask
        return mask

    def _too_few_values(self, index: int, needs: Sequence[_Need]) -> bool:
        """Whether a distinctAttribute of this claim has fewer values left than devices to come."""
        claim = self._problem.claims[index]
        own = {plan.number for plans in claim.plans for plan in plans}
        for number, constraint in enumerate(claim.constraints):
            if constraint.facts.distinct_attribute is None:
                continue
            covered = [
                need
                for need in needs
                if need.plans and all(plan.number in own and number in plan.constraints for plan in need.plans)
            ]
            values = set()
            for kind in self._kinds:
                if any(kind.devices & need.devices for need in covered):
                    device = self._problem.devices[(kind.devices & -kind.devices).bit_length() - 1]
                    values.add(_comparable(lookup(device, constraint.attribute)))
            if sum(need.count for need in covered) > len(values):
                return True
        return False

    def _too_few_counters(self, needs: Sequence[_Need]) -> bool:
        """Whether a shared counter cannot serve what is to come even if all of it takes the thriftiest devices."""
        if not self._counted:
            return False
        availability, counters = self._problem.availability, self._placement.counters
        least: dict[tuple[int, CounterKey], int] = {}
        for need in needs:
            if not need.devices or need.devices & self._shared:
                continue
            kinds = [kind for kind in self._kinds if kind.devices & need.devices]
            common = set.intersection(*({(id(kind.pool), key) for key in kind.consumed} for kind in kinds))
            for pool, key in common:
                thrift = min(kind.consumed[key] for kind in kinds)
                least[pool, key] = least.get((pool, key), 0) + need.count * thrift
        pools = {id(kind.pool): kind.pool for kind in self._counted}
        for (pool, key), amount in least.items():
            left = counters.get(pools[pool]) or availability.counters(pools[pool])
            if amount > left[key]:
                return True
        return False


def _mask(positions: Iterable[int]) -> int:
    return sum(1 << position for position in positions)


def _comparable(attribute: object) -> Hashable:
    """What constraints can see of an attribute."""
    return repr(attribute)
