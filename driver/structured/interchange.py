"""Which devices are interchangeable, and what a placement looks like when they are not told apart.

Devices are of one *kind* if this allocation cannot see a difference between them: equal answers of every plan, equal
values of every constraint, equal use of counters. Counter sets make *groups* of kinds (the partitions of one GPU);
groups are alike if one can be turned into the other by renaming the set. Exchanging two devices of a kind, or two whole
groups that are alike, turns any continuation of a search into another one that succeeds or fails as well.

So the future of a search depends only on how many devices of each kind are busy, before and behind the place where it
goes on, and on how many of the groups that are alike look how: that is a `picture`. What no request to come can see
(devices that suit none of them, constraints that cover none of them) is left out of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from driver.structured.attributes import lookup
from driver.structured.placement import Placement
from driver.structured.pools import Pool
from driver.structured.problem import CounterKey, Plan, Problem
from driver.structured.suitability import Suitability, mask

CounterSet = tuple[Pool, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """Interchangeable devices: a mask, and what each takes of its pool's counters."""

    devices: int
    pool: Pool
    consumed: dict[CounterKey, int]
    shared: bool


@dataclass(slots=True)
class _Group:
    """The kinds that take counters of the same sets, in an order that is the same for groups that are alike."""

    sets: set[CounterSet]
    kinds: list[tuple[Hashable, Kind]] = field(default_factory=list)
    counters: tuple[tuple[Pool, CounterKey], ...] = ()


@dataclass(frozen=True, slots=True)
class _View:
    """What the requests from a certain one on can see."""

    devices: int
    constraints: tuple[int, ...]  # of the claim
    singles: int
    kinds: tuple[Kind, ...]  # in no group, or in one that is like no other; those of more than one device or shared
    counters: tuple[tuple[Pool, CounterKey], ...]
    alike: tuple[tuple[_Group, ...], ...]


class Interchange:
    """The kinds and groups of a problem."""

    def __init__(self, problem: Problem, suitability: Suitability) -> None:
        """Sort the devices."""
        self._problem = problem
        self._suitability = suitability
        self._plans = [plan for claim in problem.claims for plans in claim.plans for plan in plans]
        self._admin = any(plan.request.admin_access for plan in self._plans)
        self._silent = {
            (index, number)
            for index, claim in enumerate(problem.claims)
            for number, constraint in enumerate(claim.constraints)
            if constraint.facts.distinct_attribute is not None and self._is_silent(constraint.attribute)
        }
        self.kinds: list[Kind] = []
        self._loose: list[Kind] = []
        self._alike: list[tuple[_Group, ...]] = []
        self._sort()
        self._views: dict[tuple[int, int], _View] = {}

    def picture(self, placement: Placement, index: int, number: int, start: int) -> Hashable:
        """What is placed, before request `number` of a claim goes on with positions from `start` on."""
        view = self._view(index, number)
        marked = placement.marked & view.devices
        own = placement.marked_by[index] & view.devices if self._admin else 0
        before = (1 << start) - 1
        states = placement.states[index]
        return (
            len(placement.placed[index]),
            marked & view.singles,
            own & view.singles,
            tuple([self._counts(placement, each, marked, own, before) for each in view.kinds]),
            tuple([self._left(placement, *each) for each in view.counters]),
            tuple([states[each] for each in view.constraints]),
            tuple([self._groups(placement, each, marked, own, before) for each in view.alike]),
        )

    def _counts(self, placement: Placement, kind: Kind, marked: int, own: int, before: int) -> Hashable:
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

    def _groups(
        self, placement: Placement, groups: tuple[_Group, ...], marked: int, own: int, before: int
    ) -> Hashable:
        """What each of some groups that are alike looks like, in whatever order."""
        looks: dict[Hashable, int] = {}
        for group in groups:
            look = (
                tuple([self._left(placement, *each) for each in group.counters]),
                tuple([self._counts(placement, each, marked, own, before) for _, each in group.kinds]),
                tuple([(each.devices & before).bit_count() for _, each in group.kinds]) if before else None,
            )
            looks[look] = looks.get(look, 0) + 1
        return frozenset(looks.items())

    def _left(self, placement: Placement, pool: Pool, key: CounterKey) -> int:
        left = placement.counters.get(pool)
        return (self._problem.availability.counters(pool) if left is None else left)[key]

    def _view(self, index: int, number: int) -> _View:
        view = self._views.get((index, number))
        if view is None:
            view = self._views[index, number] = self._make_view(index, number)
        return view

    def _make_view(self, index: int, number: int) -> _View:
        claims = self._problem.claims
        own = [plan for plans in claims[index].plans[number:] for plan in plans]
        ahead = own + [plan for claim in claims[index + 1 :] for plans in claim.plans for plan in plans]
        devices = 0
        for plan in ahead:
            devices |= self._suitability.relevant(plan)
        loose = [kind for kind in self._loose if kind.devices & devices]
        counters = {(kind.pool, key): None for kind in loose for key in kind.consumed}
        covered = {each for plan in own for each in plan.constraints} - {
            each for claim, each in self._silent if claim == index
        }
        return _View(
            devices=devices,
            constraints=tuple(sorted(covered)),
            singles=sum(kind.devices for kind in loose if kind.devices.bit_count() == 1 and not kind.shared),
            kinds=tuple(kind for kind in loose if kind.devices.bit_count() > 1 or kind.shared),
            counters=tuple(counters),
            alike=tuple(
                groups for groups in self._alike if any(kind.devices & devices for each in groups for _, kind in each.kinds)
            ),
        )

    def _is_silent(self, attribute: str) -> bool:
        """Whether every dedicated device has a value of its own: then to differ in it is to be another device."""
        problem = self._problem
        if self._suitability.shared:
            return False
        values = [repr(found) for device in problem.devices if (found := lookup(device, attribute)) is not None]
        return len(set(values)) == len(values)

    def _sort(self) -> None:
        groups = self._make_groups()
        masks: dict[tuple[int | None, Hashable], int] = {}
        for position, device in enumerate(self._problem.devices):
            pool = self._problem.pool_of[position]
            group = next((groups[pool, each.counter_set] for each in device.consumes if each.counters), None)
            key = (None if group is None else id(group), self._profile(position, group))
            masks[key] = masks.get(key, 0) | 1 << position
        by_id = {id(group): group for group in groups.values()}
        for (owner, profile), devices in masks.items():
            first = (devices & -devices).bit_length() - 1
            shared = bool(self._suitability.shared >> first & 1)
            pool = self._problem.pool_of[first]
            kind = Kind(devices, pool, dict(self._problem.devices[first].consumed), shared)
            self.kinds.append(kind)
            if owner is None:
                self._loose.append(kind)
            else:
                by_id[owner].kinds.append((profile, kind))
        self._compare(by_id.values())

    def _make_groups(self) -> dict[CounterSet, _Group]:
        """The counter sets that devices take from, joined where one device takes from several."""
        groups: dict[CounterSet, _Group] = {}
        for position, device in enumerate(self._problem.devices):
            pool = self._problem.pool_of[position]
            sets = {(pool, each.counter_set) for each in device.consumes if each.counters}
            joined = _Group(set(sets))
            for each in sets:
                if each in groups:
                    joined.sets |= groups[each].sets
            for each in joined.sets:
                groups[each] = joined
        return groups

    def _compare(self, groups: Iterable[_Group]) -> None:
        """Find the groups that are alike; the kinds of all others are loose."""
        classes: dict[Hashable, list[_Group]] = {}
        for group in groups:
            keys = {(kind.pool, key) for _, kind in group.kinds for key in kind.consumed}
            look: Hashable = id(group)
            if len(group.sets) == 1:
                group.counters = tuple(sorted(keys, key=lambda each: each[1]))
                left = tuple([(key[1], self._problem.availability.counters(pool)[key]) for pool, key in group.counters])
                look = (left, frozenset((profile, kind.devices.bit_count()) for profile, kind in group.kinds))
            classes.setdefault(look, []).append(group)
        for members in classes.values():
            if len(members) == 1:
                self._loose += [kind for _, kind in members[0].kinds]
                continue
            order = {profile: place for place, (profile, _) in enumerate(members[0].kinds)}
            for each in members:
                each.kinds.sort(key=lambda entry: order[entry[0]])
            self._alike.append(tuple(members))

    def _profile(self, position: int, group: _Group | None) -> Hashable:
        """Everything that this allocation can see of a device; of its group the counters' names alone, if possible."""
        problem, suitability = self._problem, self._suitability
        device = problem.devices[position]
        counters: Iterable[tuple[Hashable, int]] = device.consumed.items()
        if group is not None and len(group.sets) == 1:
            counters = [(counter, amount) for (_, counter), amount in device.consumed.items()]
        return (
            tuple([suitability.devices[plan.number] >> position & 1 for plan in self._plans]),
            tuple([each >> position & 1 for each in (*suitability.failing.values(), *suitability.until_refused.values())]),
            position if suitability.in_order >> position & 1 else None,
            problem.held >> position & 1,
            self._values(position),
            frozenset(counters),
            self._shares(position),
        )

    def _values(self, position: int) -> tuple[str, ...]:
        """What constraints see of the device; of a silent one only whether there is a value."""
        device = self._problem.devices[position]
        return tuple(
            [
                str(found is not None) if (index, number) in self._silent else repr(found)
                for index, claim in enumerate(self._problem.claims)
                for number, constraint in enumerate(claim.constraints)
                for found in (lookup(device, constraint.attribute),)
            ]
        )

    def _shares(self, position: int) -> Hashable:
        """What plans take of a shared device and what it has left; None for any other."""
        problem = self._problem
        if not self._suitability.shared >> position & 1:
            return None
        device = problem.devices[position]
        held = problem.allocated.capacity.get(device.id, {})
        amounts = [problem.known_amounts(plan, position) for plan in self._plans]
        return (
            device.id in problem.allocated.partly,
            tuple([(name, each.value.nanos - held.get(name, 0)) for name, each in device.capacity.items()]),
            tuple([None if each is None else tuple([amount.nanos for amount in each.values()]) for each in amounts]),
        )


def positions(devices: int) -> Iterable[int]:
    """The positions in a mask."""
    while devices:
        lowest = devices & -devices
        yield lowest.bit_length() - 1
        devices ^= lowest


__all__ = ["Interchange", "Kind", "mask", "positions"]
