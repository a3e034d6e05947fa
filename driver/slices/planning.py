"""Plans the writes for one pool: a function of what is stored and what is wanted.

Invariants, in the API's terms (KEP-4381): all slices of a pool carry one generation, and the scheduler uses a pool only
when all slices of its highest generation exist. So one slice may be changed in place within a generation, and any
larger change needs the next generation. A generation never goes down while slices of the pool exist.

Order of a plan: first it deletes slices that this layout numbers and nobody wants, then it changes and creates slices,
and last, only once all else is stored, it deletes what the new generation makes obsolete (older generations, other
layouts). So at every moment one generation is usable or about to be. It needs fewer writes than upstream's controller:
it updates a slice of ours that fell behind instead of replacing it, and completes an incomplete generation instead of
raising it again.

A layout (``Matching``) says which stored slice is which wanted one, and names new ones. ``ByIndex`` is that of
Kubernetes 1.36 and the default: a slice's name begins with its number, in hexadecimal digits. ``ByDeviceNames`` is that
of 1.35 and before: slices are the same if they hold the same devices. Neither recognises slices of the other, and a
plan replaces them once. Choose the old one only beside another implementation of the driver that still publishes the
same pools in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from operator import attrgetter
from typing import Final, Protocol

from driver.slices.content import up_to_date
from driver.slices.model import Owner, Pool, Slice
from driver.slices.store import StoredSlice
from node.values import Value, value

_HIGHEST: Final = 2**63 - 1


@value
class PoolKnowledge(Value):
    """What the controller remembers of a pool.

    ``ours``: uids of slices that it has written or found in order; it may change them if they fall behind.
    ``unfinished``: the generation that it began and has not completed, 0 for none. ``refused``: indexes of wanted
    slices that break a rule and must not be sent.
    """

    ours: Set[str] = frozenset()
    unfinished: int = 0
    refused: Set[int] = frozenset()


@value
class PoolPlan(Value):
    """The writes, in their order; all carry ``generation``."""

    generation: int
    excess: tuple[StoredSlice, ...] = ()
    updates: tuple[tuple[int, StoredSlice], ...] = ()
    creates: tuple[int, ...] = ()
    superseded: tuple[StoredSlice, ...] = ()
    """Slices to delete when all else of the plan is done."""
    left_behind: tuple[tuple[int, StoredSlice], ...] = ()
    """Slices whose new content is refused, to delete when other slices of the generation are stored."""
    incomplete: bool = False
    """Whether the generation was never complete, so that nobody uses its stored slices with old content."""
    exhausted: bool = False
    """Whether the plan needs a generation above the highest number, and so has only the deletions."""
    raised: bool = False
    """Whether the generation is higher than any stored one."""
    matched: Mapping[int, StoredSlice] = field(default_factory=dict)
    """The stored slice of each wanted one."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.excess or self.updates or self.creates or self.superseded or self.left_behind)


def removal(stored: Sequence[StoredSlice]) -> PoolPlan:
    """The plan for a pool that nobody wants."""
    return PoolPlan(generation=0, excess=tuple([each for each in _by_name(stored) if not each.leaving]))


def plan(
    stored: Sequence[StoredSlice], name: str, pool: Pool, matching: Matching, knowledge: PoolKnowledge
) -> PoolPlan:
    """The writes that turn the stored slices of the pool ``name`` into the wanted ones; none if they already are."""
    highest = max([each.generation for each in stored], default=0)
    matched, excess, superseded = _matched(stored, pool, matching, knowledge, highest)
    changed = {
        index
        for index, each in matched.items()
        if each.generation < highest or not up_to_date(each, name=name, pool=pool, index=index, generation=highest)
    }
    creates = _creatable(pool, matched, knowledge.refused)
    behind = any(each.generation < highest for each in matched.values())
    generation = _generation(
        highest, pool.generation, knowledge.unfinished, more=bool(creates) or behind or len(changed) > 1
    )
    raised = generation > highest
    chosen = (set(matched) if raised else changed) - knowledge.refused
    if raised and not chosen and not creates:
        # No slice of the new generation can be sent.
        generation, raised = highest, False
    if generation > _HIGHEST:
        return PoolPlan(highest, excess=excess, exhausted=True, matched=matched)
    left = [(index, matched[index]) for index in sorted(changed & knowledge.refused)]
    incomplete = raised or 0 < knowledge.unfinished == generation
    return PoolPlan(
        generation=generation,
        excess=excess,
        updates=tuple([(index, matched[index]) for index in sorted(chosen)]),
        creates=creates,
        superseded=superseded,
        left_behind=tuple(left) if incomplete else (),
        incomplete=incomplete,
        raised=raised,
        matched=matched,
    )


def _matched(
    stored: Sequence[StoredSlice], pool: Pool, matching: Matching, knowledge: PoolKnowledge, highest: int
) -> tuple[dict[int, StoredSlice], tuple[StoredSlice, ...], tuple[StoredSlice, ...]]:
    """The stored slice of each wanted one; the surplus ones; those of older generations and other layouts."""
    usable = [each for each in stored if each.generation == highest or each.uid in knowledge.ours]
    indexes = matching.match(usable, pool.slices)
    candidates: defaultdict[int, list[StoredSlice]] = defaultdict(list)
    for each in usable:
        if each.name in indexes:
            candidates[indexes[each.name]].append(each)
    excess = candidates.pop(BEYOND, [])
    matched: dict[int, StoredSlice] = {}
    for index, several in candidates.items():
        first, *others = sorted(several, key=lambda each: (-each.generation, each.uid not in knowledge.ours, each.name))
        matched[index] = first
        excess += others
    known = {each.name for each in [*matched.values(), *excess]}
    superseded = [each for each in _by_name(stored) if each.name not in known and not each.leaving]
    return matched, tuple([each for each in _by_name(excess) if not each.leaving]), tuple(superseded)


def _creatable(pool: Pool, matched: Mapping[int, StoredSlice], refused: Set[int]) -> tuple[int, ...]:
    """The missing slices before the first refused one, whether or not that one is stored.

    A pool is built from its beginning, and one that lacks a slice is not used: slices behind the gap would help nobody,
    and an old slice that cannot be replaced is worth more while all of its generation exist.
    """
    first = min(refused, default=len(pool.slices))
    return tuple([index for index in range(first) if index not in matched])


def _generation(highest: int, asked: int, unfinished: int, *, more: bool) -> int:
    """The generation to write. ``more``: whether the plan is more than one slice that changes in place."""
    if asked > highest:
        return asked
    if not more or (highest > 0 and unfinished == highest):
        return highest
    return highest + 1


def _by_name(stored: Sequence[StoredSlice]) -> list[StoredSlice]:
    return sorted(stored, key=attrgetter("name"))


_LEAST_DIGITS: Final = 5
_HEXADECIMAL: Final = re.compile("[0-9a-fA-F]+")

_MISSING: Final = 16
"""Slices of a layout that may be missing beyond the number that exist.

Anybody can write the number in a name, and it decides how long a layout gets; and if most slices are missing, all of
them are written again.
"""

BEYOND: Final = -1
"""The index of a stored slice of this layout that nobody wants any more."""


class Matching(Protocol):
    """A layout of slices in the API."""

    def match(self, stored: Sequence[StoredSlice], wanted: Sequence[Slice]) -> Mapping[str, int]:
        """By the name of each stored slice, the index of the wanted one that it may be, or ``BEYOND``.

        Slices of other layouts are left out. Several slices may have one index.
        """

    def generate_name(self, index: int, count: int, driver: str, owner: Owner | None) -> str:
        """``generateName`` for a new slice, one of ``count``. The server keeps 58 characters of it and appends five."""

    def layout(self, stored: Sequence[StoredSlice]) -> tuple[tuple[str, ...], ...]:
        """The names of the devices by index of slice; empty for a missing slice."""


@value
class ByIndex(Value):
    """Names such as ``00003-driver.example.com-node-x7k2p``: the number has five digits, more in very large pools."""

    def match(self, stored: Sequence[StoredSlice], wanted: Sequence[Slice]) -> Mapping[str, int]:
        """See ``Matching``."""
        digits = _digits(len(wanted))
        found = {each.name: _index(each.name, digits) for each in stored}
        return {name: index if index < len(wanted) else BEYOND for name, index in found.items() if index is not None}

    def generate_name(self, index: int, count: int, driver: str, owner: Owner | None) -> str:
        """See ``Matching``."""
        rest = f"{driver}-{owner.name}-" if owner is not None else f"{driver}-"
        return f"{index:0{_digits(count)}x}-{rest}"

    def layout(self, stored: Sequence[StoredSlice]) -> tuple[tuple[str, ...], ...]:
        """See ``Matching``."""
        by_index: dict[int, tuple[str, ...]] = {}
        newest = _newest(stored)
        for each in newest:
            index = _index(each.name, max(each.name.find("-"), _LEAST_DIGITS))
            if index is not None and index < 2 * len(newest) + _MISSING:
                by_index.setdefault(index, each.device_names)
        return tuple([by_index.get(index, ()) for index in range(max(by_index, default=-1) + 1)])


@value
class ByDeviceNames(Value):
    """Names such as ``node-driver.example.com-x7k2p``; a pool of one slice is that slice, whatever it holds."""

    def match(self, stored: Sequence[StoredSlice], wanted: Sequence[Slice]) -> Mapping[str, int]:
        """See ``Matching``."""
        if len(stored) == 1 and len(wanted) == 1:
            return {stored[0].name: 0}
        free: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for index, slice_ in enumerate(wanted):
            free[frozenset(slice_.names)].append(index)
        found: dict[str, int] = {}
        for each in sorted(stored, key=lambda old: (-old.generation, old.name)):
            indexes = free.get(frozenset(each.device_names))
            if indexes:
                found[each.name] = indexes.pop(0)
        return found

    def generate_name(self, index: int, count: int, driver: str, owner: Owner | None) -> str:
        """See ``Matching``."""
        return f"{owner.name}-{driver}-" if owner is not None else f"{driver}-"

    def layout(self, stored: Sequence[StoredSlice]) -> tuple[tuple[str, ...], ...]:
        """See ``Matching``."""
        return tuple([each.device_names for each in sorted(_newest(stored), key=attrgetter("name"))])


def _digits(count: int) -> int:
    return max(_LEAST_DIGITS, len(f"{max(count - 1, 0):x}"))


def _index(name: str, digits: int) -> int | None:
    prefix, dash, _ = name.partition("-")
    if not dash or len(prefix) != digits or not _HEXADECIMAL.fullmatch(prefix):
        return None
    return int(prefix, 16)


def _newest(stored: Sequence[StoredSlice]) -> list[StoredSlice]:
    highest = max([each.generation for each in stored], default=0)
    return sorted([each for each in stored if each.generation == highest], key=attrgetter("name"))
