"""Counting arguments that show that devices cannot be placed; every bound holds for any way to place them.

Places: whether demands can be met from a common stock, each from its own part of it. Hall's marriage condition, decided
as a flow: a demand is a number of different places out of a set of them; a place serves one demand or, if it says so,
several. Sets are bit masks.

Counters: what devices still to be placed must at least take of shared counters, against what is left of them. The
demand is counted low, what is left exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduling.allocator.allocated import CounterKey
from scheduling.allocator.interchange import InterchangeableDevices
from scheduling.allocator.placement import Placement
from scheduling.allocator.pools import ResourcePool
from scheduling.allocator.problem import Problem
from scheduling.allocator.suitability import union

Demand = tuple[int, int]
"""How many places, and the mask of those that will do."""

_ATOMS_MAX = 200
"""Most pieces that are examined; with more, the answer is that nothing prevents a solution."""


def can_be_met(demands: Sequence[Demand], room: Mapping[int, int]) -> bool:
    """Whether all demands can be met at once; True as well if the answer would take too long.

    `room`: place -> how many demands it serves, for places that do not serve just one.
    """
    if any(places.bit_count() < count for count, places in demands):
        return False
    ordered = sorted(demands, key=lambda demand: demand[1].bit_count())
    so_far = 0
    for count, places in ordered:
        so_far += count
        if so_far > places.bit_count():
            break
    else:
        # Served in this order, each demand finds enough places left over by those before it.
        return not room or _Flow(ordered, room).saturated()
    return _Flow(ordered, room).saturated()


class _Flow:
    """A maximum flow from demands to atoms: places that the same demands want, taken together."""

    def __init__(self, demands: Sequence[Demand], room: Mapping[int, int]) -> None:
        self._demands = demands
        self._atoms = _atoms([places for _, places in demands], room)
        alone = [each.bit_length() - 1 in room for each in self._atoms]
        sizes = [each.bit_count() for each in self._atoms]
        self._room = [
            room[atom.bit_length() - 1] if one else size
            for atom, one, size in zip(self._atoms, alone, sizes, strict=True)
        ]
        self._most = sizes  # what one demand can have of an atom
        self._served: list[dict[int, int]] = [{} for _ in self._atoms]  # per atom: demand -> number of places

    def saturated(self) -> bool:
        """Whether every demand gets all it wants."""
        if len(self._atoms) > _ATOMS_MAX:
            return True
        return all(self._serve(number, set()) for number, (count, _) in enumerate(self._demands) for _ in range(count))

    def _serve(self, number: int, tried: set[int]) -> bool:
        """Give one more place to a demand, if need be by moving others to other atoms."""
        wanted = self._demands[number][1]
        for index, atom in enumerate(self._atoms):
            served = self._served[index]
            if index in tried or not atom & wanted or served.get(number, 0) >= self._most[index]:
                continue
            tried.add(index)
            if sum(served.values()) < self._room[index]:
                served[number] = served.get(number, 0) + 1
                return True
            for other in [each for each, places in served.items() if places and each != number]:
                if self._serve(other, tried):
                    served[other] -= 1
                    served[number] = served.get(number, 0) + 1
                    return True
        return False


def _atoms(sets: Sequence[int], apart: Mapping[int, int]) -> list[int]:
    """The sets cut into pieces that no set cuts again; places that are `apart` are pieces of their own."""
    everything = union(sets)
    own = [1 << place for place in apart if everything >> place & 1]
    rest = everything & ~sum(own)
    pieces = [rest] if rest else []
    for each in sets:
        pieces = [part for piece in pieces for part in (piece & each, piece & ~each) if part]
    return own + pieces


Wanted = tuple[int, int]
"""How many devices, and the mask of those that will do; all devices wanted are different ones."""

_Key = tuple[ResourcePool, CounterKey]
_ALL = ""
"""All counters together, each as a share of its total (no counter has an empty name)."""
_SCALE = 10**6


@dataclass(slots=True)
class _Take:
    """What some devices take of the counters of one name, in whatever sets."""

    least: int
    keys: frozenset[_Key]
    split: bool  # a device takes from more than one of them


class CounterBounds:
    """The bounds for one problem."""

    def __init__(self, problem: Problem, placement: Placement, kinds: Sequence[InterchangeableDevices]) -> None:
        """`kinds` that take no counters, or are shared, do not matter."""
        self._problem = problem
        self._placement = placement
        self._kinds = [kind for kind in kinds if kind.consumed and not kind.shared]
        self._whole: dict[_Key, int] = {}
        for kind in self._kinds:
            for key in kind.consumed:
                self._whole[kind.pool, key] = max(problem.availability.counters(kind.pool)[key], 1)
        self._takes = {id(kind): self._taken_by(kind) for kind in self._kinds}

    def exceeded(self, wanted: Sequence[Wanted]) -> bool:
        """Whether the counters cannot serve the demand, even with the thriftiest devices."""
        if not self._kinds:
            return False
        by_name: dict[str, list[tuple[int, int, _Take]]] = {}
        single: dict[_Key, int] = {}
        for count, devices in wanted:
            kinds = [kind for kind in self._kinds if kind.devices & devices]
            if count < 1 or not kinds or devices & ~union(kind.devices for kind in kinds):
                continue  # nothing is wanted, or some of the devices take nothing
            for name, take in self._common(kinds).items():
                by_name.setdefault(name, []).append((count, devices, take))
            for key in set.intersection(*({(kind.pool, key) for key in kind.consumed} for kind in kinds)):
                single[key] = single.get(key, 0) + count * min(kind.consumed[key[1]] for kind in kinds)
        return any(amount > self._placement.left(*key) for key, amount in single.items()) or any(
            self._name_exceeded(name, takers) for name, takers in by_name.items()
        )

    def _name_exceeded(self, name: str, takers: Sequence[tuple[int, int, _Take]]) -> bool:
        left = {key: self._left_of(name, key) for _, _, take in takers for key in take.keys}
        total = sum(left.values())
        if sum(count * take.least for count, _, take in takers) > total:
            return True
        if self._smallest(name, takers) > total:
            return True
        if name == _ALL or any(take.split for _, _, take in takers):
            return False
        # Each device takes from one set: so many that take at least `least` fit into all of them.
        for least in {take.least for _, _, take in takers if take.least > 0}:
            greedy = [(count, take) for count, _, take in takers if take.least >= least]
            keys = {key for _, take in greedy for key in take.keys}
            if sum(count for count, _ in greedy) > sum(left[key] // least for key in keys):
                return True
        return False

    def _smallest(self, name: str, takers: Sequence[tuple[int, int, _Take]]) -> int:
        """What as many different devices take as are wanted, if the thriftiest of all are taken."""
        devices = union(each for _, each, _ in takers)
        wanted = sum(count for count, _, _ in takers)
        amounts = sorted(
            (self._takes[id(kind)][name].least, (kind.devices & devices).bit_count())
            for kind in self._kinds
            if kind.devices & devices
        )
        total = 0
        for amount, number in amounts:
            total += amount * min(number, wanted)
            wanted -= min(number, wanted)
        return total

    def _taken_by(self, kind: InterchangeableDevices) -> dict[str, _Take]:
        takes: dict[str, _Take] = {}
        for key, amount in kind.consumed.items():
            place = (kind.pool, key)
            for name, share in ((key[1], amount), (_ALL, amount * _SCALE // self._whole[place])):
                known = takes.get(name)
                if known is None:
                    takes[name] = _Take(share, frozenset((place,)), split=False)
                else:
                    takes[name] = _Take(known.least + share, known.keys | {place}, split=True)
        return takes

    def _common(self, kinds: Sequence[InterchangeableDevices]) -> dict[str, _Take]:
        """The names of which all of these kinds take."""
        common = dict(self._takes[id(kinds[0])])
        for kind in kinds[1:]:
            own = self._takes[id(kind)]
            common = {
                name: _Take(min(take.least, own[name].least), take.keys | own[name].keys, take.split or own[name].split)
                for name, take in common.items()
                if name in own
            }
        return common

    def _left_of(self, name: str, key: _Key) -> int:
        left = self._placement.left(*key)
        return left if name != _ALL else -(-left * _SCALE // self._whole[key])
