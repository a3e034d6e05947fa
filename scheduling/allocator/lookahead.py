"""Seeing early that a search cannot succeed.

The requests still to be placed are *needs*: so many devices, out of those that are free, suit, and are allowed by what
the constraints have become so far. A search is hopeless if one of these follows from counting:

- *Values.* A matchAttribute must have a value that all of its needs find often enough; devices without such a value
  are no use to them. This is repeated until nothing changes.
- *Devices.* All needs must find different devices at once; a shared device serves as many as it has capacity for.
- *Different values.* The same for the values of a distinctAttribute.
- *Sets of equal value.* Where several sets of devices must agree among themselves, there must be as many such sets.
- *Counters.* The amount that the thriftiest devices take must be left, in each counter and in all counters of a name
  together.

Each need is a condition that any success meets: the masks are never smaller, the numbers never larger than what the
search would have to place. Only requests that cannot fail with an error are needs, and none that comes after one that
can, or after one that would break the limit of devices per claim even with the least of its alternatives and of those
before it: the plain search would have ended there in its own way, and so must this one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from scheduling.allocator.bounds import CounterBounds, can_be_met
from scheduling.allocator.claims import RESULTS_MAX
from scheduling.allocator.constraints import START, State
from scheduling.allocator.interchange import InterchangeableDevices
from scheduling.allocator.placement import Placement
from scheduling.allocator.problem import Problem, RequestPlan
from scheduling.allocator.suitability import Suitability, positions, union

_ROUNDS = 4
"""How often values are narrowed at most."""

_NEEDS_MAX = 128
"""Most requests that are examined; those after them are left for later."""


@dataclass(slots=True)
class _Need:
    """A request still to be placed: at least `count` devices, all of them among `devices` (a mask)."""

    claim: int
    count: int
    devices: int
    plans: tuple[RequestPlan, ...]  # the alternatives that are still possible

    @property
    def admin(self) -> bool:
        return any(plan.request.admin_access for plan in self.plans)

    def covered_by(self, claim: int, number: int) -> bool:
        """Whether a constraint of a claim covers it, whichever alternative is taken."""
        return self.claim == claim and all(number in plan.constraints for plan in self.plans)


class LookAhead:
    """Counts whether the rest of a search can still succeed."""

    def __init__(
        self, problem: Problem, placement: Placement, suitability: Suitability, kinds: Sequence[InterchangeableDevices]
    ) -> None:
        """`kinds` are the devices, sorted by what they take of counters among other things."""
        self._problem = problem
        self._placement = placement
        self._suitability = suitability
        self._counters = CounterBounds(problem, placement, kinds)
        self._allowed: dict[tuple[int, int, State], int] = {}
        self._values: dict[tuple[int, int], dict[Hashable, int]] = {}

    def hopeless(self, index: int, number: int, plan: RequestPlan, count: int, start: int) -> bool:
        """Whether nothing can come of placing the `count`-th device of a plan on positions from `start` on."""
        needs = list(islice(self._needs(index, number, plan, count, start), _NEEDS_MAX))
        if any(need.devices.bit_count() < need.count for need in needs):
            return True
        return (
            self._no_common_value(needs)
            or self._too_few_devices(needs)
            or self._too_few_values(needs)
            or self._too_few_sets(needs)
            or self._too_few_counters(needs)
        )

    def _needs(self, index: int, number: int, plan: RequestPlan, count: int, start: int) -> Iterator[_Need]:
        """The needs from here on, up to the first request that can end the search in another way."""
        claims = self._problem.claims
        if plan.number in self._suitability.fallible:
            return
        remaining = plan.wanted - count
        yield _Need(index, remaining, self._free(index, plan) >> start << start, (plan,))
        least = len(self._placement.placed[index]) + remaining
        for each in range(index, len(claims)):
            for plans in claims[each].plans[number + 1 if each == index else 0 :]:
                least += max(min(plan.wanted for plan in plans), 0)
                if each == index and least > RESULTS_MAX:
                    return
                if all(self._fails_at_once(each, plan) for plan in plans):
                    yield _Need(each, 1, 0, ())
                    return
                if any(plan.number in self._suitability.fallible for plan in plans):
                    return
                yield self._choice(each, plans)

    def _fails_at_once(self, index: int, plan: RequestPlan) -> bool:
        """Whether a plan in mode All fails before a constraint can make it an error."""
        return bool(self._suitability.until_refused.get(plan.number, 0) & self._placement.busy(index, plan))

    def _choice(self, index: int, plans: Sequence[RequestPlan]) -> _Need:
        """The least that a request needs, whichever of its alternatives is taken."""
        feasible: list[RequestPlan] = []
        devices = 0
        for plan in plans:
            free = self._free(index, plan)
            if free.bit_count() >= max(plan.wanted, 1 if plan.devices is not None else 0):
                devices |= free
                feasible.append(plan)
        if not feasible:
            return _Need(index, 1, 0, ())
        return _Need(index, min(plan.wanted for plan in feasible), devices, tuple(feasible))

    def _free(self, index: int, plan: RequestPlan) -> int:
        """The devices that this plan could still have, one by one."""
        placement = self._placement
        mask = self._suitability.devices[plan.number] & ~placement.busy(index, plan)
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
            masks = self._masks_by_value(index, number)
            mask = union(masks.get(value, 0) for value in constraint.held(state))
            if constraint.facts.match_attribute is None:
                mask = ~mask
            self._allowed[key] = mask
        return mask

    def _masks_by_value(self, index: int, number: int) -> dict[Hashable, int]:
        """The devices of each value of a constraint's attribute; of a list each element is a value."""
        found = self._values.get((index, number))
        if found is None:
            found = self._values[index, number] = {}
            constraint = self._problem.claims[index].constraints[number]
            for position, device in enumerate(self._problem.devices):
                for value in constraint.values(device):
                    found[value] = found.get(value, 0) | 1 << position
        return found

    def _constrained(self, needs: Sequence[_Need], rule: str) -> Iterator[tuple[int, int, list[_Need]]]:
        """The constraints of a rule (claim, number) that cover several devices, with the needs that they cover."""
        for index in sorted({need.claim for need in needs}):
            for number, constraint in enumerate(self._problem.claims[index].constraints):
                if constraint.facts.rule != rule:
                    continue
                covered = [need for need in needs if need.count > 0 and need.covered_by(index, number)]
                if sum(need.count for need in covered) > 1:
                    yield index, number, covered

    def _no_common_value(self, needs: Sequence[_Need]) -> bool:
        """Narrow needs to devices of values that all needs of a matchAttribute can have; whether one cannot be met."""
        matches = list(self._constrained(needs, "matchAttribute"))
        for _ in range(_ROUNDS):
            changed = False
            for index, number, covered in matches:
                allowed = 0
                for devices in self._masks_at(index, number):
                    if self._enough(covered, devices):
                        allowed |= devices
                for need in covered:
                    narrowed = need.devices & allowed
                    changed = changed or narrowed != need.devices
                    need.devices = narrowed
                    if narrowed.bit_count() < need.count:
                        return True
            if not changed:
                return False
        return False

    def _masks_at(self, index: int, number: int) -> Iterable[int]:
        """The devices of each value that a matchAttribute can still have."""
        masks = self._masks_by_value(index, number)
        state = self._placement.states[index][number]
        if state is START:
            return masks.values()
        held = self._problem.claims[index].constraints[number].held(state)
        return [masks[value] for value in held if value in masks]

    def _enough(self, needs: Sequence[_Need], devices: int) -> bool:
        """Whether needs can all be met among these devices, by number."""
        if any((need.devices & devices).bit_count() < need.count for need in needs):
            return False
        found = union(need.devices & devices for need in needs)
        return bool(found & self._suitability.shared) or sum(need.count for need in needs) <= found.bit_count()

    def _too_few_devices(self, needs: Sequence[_Need]) -> bool:
        """Whether the needs cannot all have different devices. Admin access is no hindrance and has none."""
        ordinary = [need for need in needs if need.count > 0 and not need.admin]
        return not can_be_met([(need.count, need.devices) for need in ordinary], self._shares(ordinary))

    def _shares(self, needs: Sequence[_Need]) -> dict[int, int]:
        """How many needs each shared device can serve, at best."""
        shares = {}
        for position in positions(union(need.devices for need in needs) & self._suitability.shared):
            wanting = [need for need in needs if need.devices >> position & 1]
            shares[position] = self._most_shares(position, wanting)
        return shares

    def _most_shares(self, position: int, needs: Sequence[_Need]) -> int:
        """What is left of each capacity, divided by the least that any of these needs would take."""
        problem = self._problem
        device = problem.devices[position]
        held = problem.allocated.capacity.get(device.id, {})
        taken = self._placement.taken.get(position, {})
        suiting = self._suitability.devices
        plans = [plan for need in needs for plan in need.plans if suiting[plan.number] >> position & 1]
        most = len(needs)
        for name, capacity in device.capacity.items():
            left = capacity.value.nanos - held.get(name, 0) - taken.get(name, 0)
            least = min(
                amounts[name].nanos if (amounts := problem.known_amounts(plan, position)) is not None else 0
                for plan in plans
            )
            if least > 0:
                most = min(most, max(left, 0) // least)
        return most

    def _too_few_values(self, needs: Sequence[_Need]) -> bool:
        """Whether a distinctAttribute has fewer values left than devices to come."""
        for index, number, covered in self._constrained(needs, "distinctAttribute"):
            looks = list(self._looks(index, number).values())
            demands = [
                (need.count, sum(1 << place for place, devices in enumerate(looks) if devices & need.devices))
                for need in covered
            ]
            if not can_be_met(demands, {}):
                return True
        return False

    def _looks(self, index: int, number: int) -> dict[Hashable, int]:
        """The devices by what a constraint sees of them: two of one look never go together in a distinctAttribute."""
        key = (index, -1 - number)
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = {}
            constraint = self._problem.claims[index].constraints[number]
            for position, device in enumerate(self._problem.devices):
                state = constraint.add(START, device)
                found[state] = found.get(state, 0) | 1 << position
        return found

    def _too_few_sets(self, needs: Sequence[_Need]) -> bool:
        """Whether there are too few sets of devices of equal value, where several sets are wanted."""
        groups: dict[str, list[tuple[int, int, int]]] = {}
        where: dict[str, tuple[int, int]] = {}
        counted: set[tuple[str, int]] = set()
        for index, number, covered in self._constrained(needs, "matchAttribute"):
            attribute = self._problem.claims[index].constraints[number].attribute
            devices = union(need.devices for need in covered)
            fresh = not any((attribute, id(need)) in counted or need.admin for need in covered)
            if fresh and not devices & self._suitability.shared:
                counted.update((attribute, id(need)) for need in covered)
                groups.setdefault(attribute, []).append((sum(need.count for need in covered), devices, index))
                where.setdefault(attribute, (index, number))
        for attribute, wanted in groups.items():
            if len(wanted) == 1:
                continue
            least = min(count for count, _, _ in wanted)
            wide = union(devices for _, devices, _ in wanted)
            masks = self._masks_by_value(*where[attribute]).values()
            if sum((devices & wide).bit_count() // least for devices in masks) < len(wanted):
                return True
        return False

    def _too_few_counters(self, needs: Sequence[_Need]) -> bool:
        """Whether counters cannot serve what is to come. Shares of one device take them once, so these do not count.

        Nor does admin access: its devices may be those of other requests.
        """
        shared = self._suitability.shared
        dedicated = [need for need in needs if not need.devices & shared]
        ordinary = [(need.count, need.devices) for need in dedicated if not need.admin]
        return self._counters.exceeded(ordinary)
