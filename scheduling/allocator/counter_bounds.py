"""What devices still to be placed must at least take of shared counters, against what is left of them.

Each bound holds for any way to place the devices: what is wanted is counted low, what is left exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.allocator.interchange import Kind
from scheduling.allocator.placement import Placement
from scheduling.allocator.pools import Pool
from scheduling.allocator.problem import CounterKey, Problem

Wanted = tuple[int, int]
"""How many devices, and the mask of those that will do; all devices wanted are different ones."""

_Key = tuple[Pool, CounterKey]
_ALL = ""
"""Stands for all counters together, each as a share of what there is of it (no counter has an empty name)."""
_SCALE = 10**6


@dataclass(slots=True)
class _Take:
    """What some devices take of the counters of one name, in whatever sets."""

    least: int
    keys: frozenset[_Key]
    split: bool  # a device takes from more than one of them


class CounterBounds:
    """The bounds for one problem."""

    def __init__(self, problem: Problem, placement: Placement, kinds: Sequence[Kind]) -> None:
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
        """Whether the counters cannot serve what is wanted, even with the thriftiest devices."""
        if not self._kinds:
            return False
        by_name: dict[str, list[tuple[int, int, _Take]]] = {}
        single: dict[_Key, int] = {}
        for count, devices in wanted:
            kinds = [kind for kind in self._kinds if kind.devices & devices]
            if count < 1 or not kinds or devices & ~self._union(kinds):
                continue  # nothing is wanted, or some of the devices take nothing
            for name, take in self._common(kinds).items():
                by_name.setdefault(name, []).append((count, devices, take))
            for key in set.intersection(*({(kind.pool, key) for key in kind.consumed} for kind in kinds)):
                single[key] = single.get(key, 0) + count * min(kind.consumed[key[1]] for kind in kinds)
        return any(amount > self._left(key) for key, amount in single.items()) or any(
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
        union = wanted = 0
        for count, devices, _ in takers:
            union |= devices
            wanted += count
        amounts = sorted(
            (self._takes[id(kind)][name].least, (kind.devices & union).bit_count())
            for kind in self._kinds
            if kind.devices & union
        )
        total = 0
        for amount, number in amounts:
            total += amount * min(number, wanted)
            wanted -= min(number, wanted)
        return total

    def _taken_by(self, kind: Kind) -> dict[str, _Take]:
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

    def _common(self, kinds: Sequence[Kind]) -> dict[str, _Take]:
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
        left = self._left(key)
        return left if name != _ALL else -(-left * _SCALE // self._whole[key])

    def _left(self, key: _Key) -> int:
        pool, counter = key
        left = self._placement.counters.get(pool)
        return (self._problem.availability.counters(pool) if left is None else left)[counter]

    @staticmethod
    def _union(kinds: Sequence[Kind]) -> int:
        union = 0
        for kind in kinds:
            union |= kind.devices
        return union
