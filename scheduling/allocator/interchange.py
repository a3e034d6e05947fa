"""Which devices are interchangeable, and what a placement looks like when they are not distinguished.

Devices are of one *kind* if this allocation cannot see a difference between them: equal answers of every plan, equal
values of every constraint, equal use of counters. Counter sets make *groups* of kinds (the partitions of one GPU);
groups are alike if one can be turned into the other by renaming the set. Exchanging two devices of a kind, or two whole
groups that are alike, turns any continuation of a search into another one that succeeds or fails as well.

So the future of a search depends only on how many devices of each kind are busy, before and behind the place where it
goes on, and on how many of the groups that are alike look how: that is a `picture`. What no request to come can see
(devices that suit none of them, constraints that cover none of them) is left out of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from scheduling.allocator.allocated import CounterKey
from scheduling.allocator.claims import ConstraintFacts
from scheduling.allocator.constraints import REFUSED, START, WITHOUT_VALUE, Refused, State
from scheduling.allocator.placement import Placement
from scheduling.allocator.pools import ResourcePool
from scheduling.allocator.problem import Problem, RequestPlan
from scheduling.allocator.suitability import Suitability, mask, positions, union

CounterSet = tuple[ResourcePool, str]

_SORTING_MAX = 2_000_000
"""Questions of a plan about a device, for all sortings together."""


@dataclass(frozen=True, slots=True)
class InterchangeableDevices:
    """Interchangeable devices: a mask, and what each takes of its pool's counters."""

    devices: int
    pool: ResourcePool
    consumed: dict[CounterKey, int]
    shared: bool


@dataclass(slots=True)
class _Group:
    """The kinds that take counters of the same sets, in an order that is the same for groups that are alike."""

    sets: set[CounterSet]
    kinds: list[tuple[Hashable, InterchangeableDevices]] = field(default_factory=list)
    counters: tuple[tuple[ResourcePool, CounterKey], ...] = ()


@dataclass(frozen=True, slots=True)
class _View:
    """What some requests can see: the devices that suit them, by kind, and the constraints that cover them."""

    devices: int
    states: tuple[int, ...]  # constraints of the first request's claim, whose states matter
    begun: tuple[int, ...]  # the same, where it only matters whether there is a state
    singles: int  # of kinds in no group, or in one that is like no other
    loose: Mapping[int, int]  # the same, of more than one device or shared: position -> number of its kind
    many: int  # the dedicated ones of these
    counters: Mapping[CounterSet, tuple[CounterKey, ...]]  # of kinds in no group, or in one that is like no other
    alike: Mapping[CounterSet, tuple[int, _Group]]  # with the number of the class of groups that are alike
    all_kinds: tuple[InterchangeableDevices, ...]
    mates: Mapping[int, int]  # position -> the dedicated devices of its kind, where there are others


class Interchange:
    """What a placement looks like from each request on."""

    def __init__(self, problem: Problem, suitability: Suitability, limited: bool) -> None:
        """`limited`: the number of devices that a claim has makes a difference."""
        self._problem = problem
        self._suitability = suitability
        self._limited = limited
        self._choices = [
            (index, number) for index, claim in enumerate(problem.claims) for number in range(len(claim.plans))
        ]
        self._place = {choice: place for place, choice in enumerate(self._choices)}
        plans = sum(len(self._plans(choice)) for choice in self._choices)
        # If sorting the devices for each request would take long, they are sorted for each claim, or once.
        self._by_request = len(self._choices) * plans * len(problem.devices) <= _SORTING_MAX
        self._by_claim = len(problem.claims) * plans * len(problem.devices) <= _SORTING_MAX
        self._alone: dict[tuple[int, int], list[State | Refused]] = {}
        self._silent: dict[tuple[int, int], bool] = {}
        self._consuming = mask(each for each in range(len(problem.devices)) if self._consumed(each))
        self._views: dict[tuple[int, int], _View] = {}
        self._sortings: dict[tuple[int, int], _View] = {}

    @property
    def kinds(self) -> tuple[InterchangeableDevices, ...]:
        """The kinds of the devices that the claims can have."""
        return self._view(*self._choices[0]).all_kinds if self._choices else ()

    def mates(self, index: int, number: int, position: int) -> int:
        """The dedicated devices that a request and those after it cannot tell from this one, which is one of them."""
        return self._view(index, number).mates.get(position, 0)

    def picture(self, placement: Placement, index: int, number: int, start: int) -> Hashable:
        """What is placed, before request `number` of a claim goes on with positions from `start` on."""
        view = self._view(index, number)
        marked = placement.marked & view.devices
        own = placement.marked_by[index] & view.devices
        before = (1 << start) - 1
        states = placement.states[index]
        return (
            len(placement.placed[index]) if self._limited else 0,
            marked & view.singles,
            own & view.singles,
            self._loose(placement, view, marked, own, before),
            self._counters(placement, view, marked, own, before),
            tuple([states[each] for each in view.states]),
            tuple([states[each] is START for each in view.begun]),
        )

    def _loose(self, placement: Placement, view: _View, marked: int, own: int, before: int) -> Hashable:
        """The kinds in no group of which something is placed: how many, and how many of these stand before."""
        counts: dict[int, list[int]] = {}
        for position in positions(marked & view.many):
            of_kind = counts.setdefault(view.loose[position], [0, 0, 0, 0])
            first = 0 if before >> position & 1 else 1
            of_kind[first] += 1
            of_kind[first + 2] += own >> position & 1
        shares: dict[int, list[tuple[int, ...]]] = {}
        for position, taken in placement.taken.items():
            kind = view.loose.get(position)
            if kind is not None:
                shares.setdefault(kind, []).append((before >> position & 1, *taken.values()))
        return (
            frozenset([(kind, *each) for kind, each in counts.items()]),
            frozenset([(kind, *sorted(each)) for kind, each in shares.items()]),
        )

    def _counters(self, placement: Placement, view: _View, marked: int, own: int, before: int) -> Hashable:
        """The rest of the counters that are partly used; of groups that are alike how many look how."""
        taking = (placement.marked | mask(placement.taken)) & self._consuming
        touched = {
            (self._problem.pool_of[position], name)
            for position in positions(taking)
            for name, _ in self._consumed(position)
        }
        left: list[Hashable] = []
        looks: dict[Hashable, int] = {}
        for each in touched:
            if each in view.alike:
                kind, group = view.alike[each]
                look = (kind, self._look(placement, group, marked, own, before))
                looks[look] = looks.get(look, 0) + 1
            elif each in view.counters:
                pool = each[0]
                left.append((id(pool), each[1], *[placement.left(pool, key) for key in view.counters[each]]))
        return frozenset(left), frozenset(looks.items())

    def _look(self, placement: Placement, group: _Group, marked: int, own: int, before: int) -> Hashable:
        return (
            tuple([placement.left(*each) for each in group.counters]),
            tuple([self._counts(placement, each, marked, own, before) for _, each in group.kinds]),
            tuple([(each.devices & before).bit_count() for _, each in group.kinds]) if before else None,
        )

    def _counts(
        self, placement: Placement, kind: InterchangeableDevices, marked: int, own: int, before: int
    ) -> Hashable:
        """How many of a kind are busy, and how many of these stand before the place where the search goes on."""
        devices = kind.devices
        if kind.shared:
            shares = [
                (before >> position & 1, *taken.values())
                for position, taken in placement.taken.items()
                if devices >> position & 1
            ]
            return tuple(sorted(shares))
        busy = marked & devices
        if not own:
            return (busy & before).bit_count(), busy.bit_count()
        held = own & devices
        return (busy & before).bit_count(), busy.bit_count(), (held & before).bit_count(), held.bit_count()

    def _view(self, index: int, number: int) -> _View:
        view = self._views.get((index, number))
        if view is None:
            first = (index, number) if self._by_request else (index, 0) if self._by_claim else self._choices[0]
            sorting = self._sortings.get(first)
            if sorting is None:
                sorting = self._sortings[first] = self._sort(self._choices[self._place[first] :])
            view = self._views[index, number] = self._seen_by(sorting, index, number)
        return view

    def _plans(self, choice: tuple[int, int]) -> tuple[RequestPlan, ...]:
        index, number = choice
        return self._problem.claims[index].plans[number]

    def _seen_by(self, sorting: _View, index: int, number: int) -> _View:
        """What requests of a claim from `number` on can see of constraints."""
        own = [plan for plans in self._problem.claims[index].plans[number:] for plan in plans]
        covering = sorted({each for plan in own for each in plan.constraints})
        matching = [each for each in covering if self._facts(index, each).match_attribute is not None]
        silent = {each for each in covering if self._is_silent(index, each)}
        return replace(
            sorting,
            states=tuple(each for each in covering if each not in silent),
            begun=tuple(each for each in matching if each in silent),
        )

    def _facts(self, index: int, number: int) -> ConstraintFacts:
        return self._problem.claims[index].constraints[number].facts

    def _is_silent(self, index: int, number: int) -> bool:
        """Whether no two devices, all of them dedicated, have a value in common, and each has one.

        Then devices need not be distinguished by their values: to differ is to be another device, to match impossible.
        """
        known = self._silent.get((index, number))
        if known is None:
            known = self._silent[index, number] = self._find_silent(index, number)
        return known

    def _find_silent(self, index: int, number: int) -> bool:
        if self._suitability.shared:
            return False
        constraint = self._problem.claims[index].constraints[number]
        seen: set[Hashable] = set()
        for device, state in zip(self._problem.devices, self._states(index, number), strict=True):
            if state is REFUSED:
                continue
            if isinstance(state, frozenset) and WITHOUT_VALUE in state:
                return False
            values = set(constraint.values(device))
            if not seen.isdisjoint(values):
                return False
            seen |= values
        return True

    def _states(self, index: int, number: int) -> list[State | Refused]:
        """What each device alone makes of a constraint."""
        found = self._alone.get((index, number))
        if found is None:
            constraint = self._problem.claims[index].constraints[number]
            found = self._alone[index, number] = [constraint.add(START, each) for each in self._problem.devices]
        return found

    def _sort(self, choices: Sequence[tuple[int, int]]) -> _View:
        """Sort the devices by what these requests can see of them."""
        plans = [plan for choice in choices for plan in self._plans(choice)]
        devices = union(self._suitability.relevant(plan) for plan in plans)
        constraints = sorted(
            {(choice[0], number) for choice in choices for plan in self._plans(choice) for number in plan.constraints}
        )
        groups = self._make_groups(devices)
        asked = self._masks(plans)
        masks: dict[tuple[int | None, Hashable], int] = {}
        for position in positions(devices):
            pool = self._problem.pool_of[position]
            group = next((groups[pool, name] for name, _ in self._consumed(position)), None)
            key = (None if group is None else id(group), self._profile(position, group, plans, asked, constraints))
            masks[key] = masks.get(key, 0) | 1 << position
        by_id = {id(group): group for group in groups.values()}
        loose: list[InterchangeableDevices] = []
        kinds: list[InterchangeableDevices] = []
        for (owner, profile), same in masks.items():
            first = (same & -same).bit_length() - 1
            shared = bool(self._suitability.shared >> first & 1)
            kind = InterchangeableDevices(same, self._problem.pool_of[first], dict(self._consumed(first)), shared)
            kinds.append(kind)
            if owner is None:
                loose.append(kind)
            else:
                by_id[owner].kinds.append((profile, kind))
        alike = self._compare(by_id.values(), loose)
        many = [kind for kind in loose if kind.devices.bit_count() > 1 or kind.shared]
        counters: dict[CounterSet, set[CounterKey]] = {}
        for kind in loose:
            for counter in kind.consumed:
                counters.setdefault((kind.pool, counter[0]), set()).add(counter)
        return _View(
            devices=devices,
            states=(),
            begun=(),
            singles=sum(kind.devices for kind in loose if kind.devices.bit_count() == 1 and not kind.shared),
            loose={each: number for number, kind in enumerate(many) for each in positions(kind.devices)},
            many=mask(each for kind in many if not kind.shared for each in positions(kind.devices)),
            counters={each: tuple(sorted(keys)) for each, keys in counters.items()},
            alike={each: (number, group) for number, same in enumerate(alike) for group in same for each in group.sets},
            all_kinds=tuple(kinds),
            mates={
                position: kind.devices
                for kind in kinds
                if not kind.shared and kind.devices & (kind.devices - 1)
                for position in positions(kind.devices)
            },
        )

    def _make_groups(self, devices: int) -> dict[CounterSet, _Group]:
        """The counter sets that devices take from, joined where one device takes from several."""
        groups: dict[CounterSet, _Group] = {}
        for position in positions(devices):
            pool = self._problem.pool_of[position]
            sets = {(pool, name) for name, _ in self._consumed(position)}
            if sets <= groups.keys() and len({id(groups[each]) for each in sets}) < 2:
                continue
            joined = _Group(set(sets))
            for each in sets:
                if each in groups:
                    joined.sets |= groups[each].sets
            for each in joined.sets:
                groups[each] = joined
        return groups

    def _compare(self, groups: Iterable[_Group], loose: list[InterchangeableDevices]) -> list[tuple[_Group, ...]]:
        """The groups that are alike; the kinds of all others are loose."""
        classes: dict[Hashable, list[_Group]] = {}
        for group in groups:
            look: Hashable = id(group)
            if len(group.sets) == 1:
                keys = {(kind.pool, key) for _, kind in group.kinds for key in kind.consumed}
                group.counters = tuple(sorted(keys, key=itemgetter(1)))
                left = tuple([(key[1], self._problem.availability.counters(pool)[key]) for pool, key in group.counters])
                look = (left, frozenset((profile, kind.devices.bit_count()) for profile, kind in group.kinds))
            classes.setdefault(look, []).append(group)
        alike = []
        for members in classes.values():
            if len(members) == 1:
                loose += [kind for _, kind in members[0].kinds]
                continue
            order = {profile: place for place, (profile, _) in enumerate(members[0].kinds)}
            for each in members:
                each.kinds.sort(key=lambda entry: order[entry[0]])
            alike.append(tuple(members))
        return alike

    def _masks(self, plans: Sequence[RequestPlan]) -> tuple[int, ...]:
        """All that plans find out about devices, each different answer once."""
        suitability = self._suitability
        answers = (suitability.devices, suitability.failing, suitability.until_refused)
        return tuple({each[plan.number] for each in answers for plan in plans if plan.number in each})

    def _profile(
        self,
        position: int,
        group: _Group | None,
        plans: Sequence[RequestPlan],
        asked: Sequence[int],
        constraints: Sequence[tuple[int, int]],
    ) -> Hashable:
        """Everything that requests can see of a device; of its group only the counters' names, if possible."""
        problem, suitability = self._problem, self._suitability
        consumed = self._consumed(position)
        counters: Iterable[tuple[Hashable, int]] = consumed.items()
        if group is not None and len(group.sets) == 1:
            counters = [(counter, amount) for (_, counter), amount in consumed.items()]
        ordered = any(suitability.in_order.get(plan.number, 0) >> position & 1 for plan in plans)
        return (
            tuple([each >> position & 1 for each in asked]),
            position if ordered else None,
            problem.held >> position & 1,
            tuple([self._seen(position, *each) for each in constraints]),
            frozenset(counters),
            self._shares(position, plans),
        )

    def _seen(self, position: int, index: int, number: int) -> Hashable:
        """What a constraint sees of a device; a silent one only whether there is a value."""
        state = self._states(index, number)[position]
        return state is REFUSED if self._is_silent(index, number) else state

    def _consumed(self, position: int) -> Mapping[CounterKey, int]:
        """What the device takes of counters; while the feature is off no request can have it, so there are none."""
        return self._problem.devices[position].consumed if self._problem.features.partitionable_devices else {}

    def _shares(self, position: int, plans: Sequence[RequestPlan]) -> Hashable:
        """What plans take of a shared device and what it has left; None for any other."""
        problem = self._problem
        if not self._suitability.shared >> position & 1:
            return None
        device = problem.devices[position]
        held = problem.allocated.capacity.get(device.id, {})
        amounts = [problem.known_amounts(plan, position) for plan in plans]
        return (
            device.id in problem.allocated.partly,
            tuple([(name, each.value.nanos - held.get(name, 0)) for name, each in device.capacity.items()]),
            tuple([None if each is None else tuple([amount.nanos for amount in each.values()]) for each in amounts]),
        )
