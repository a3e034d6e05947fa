"""What to write for one pool: a function of what is stored and what is wanted.

Invariants, in words of the API (KEP-4381): all slices of a pool carry one generation, and a pool is used only when all
slices of its highest generation are there. So one slice may be changed in place within a generation, and everything
more needs the next one. A generation is never taken back while slices of the pool exist.

Order of a plan: slices that this layout numbers and nobody wants go first, changes and new slices follow, and what the
new generation makes obsolete (older generations, other layouts) goes last and only when all else is stored, so that at
every moment one generation can be used or is about to be. Fewer writes than upstream's controller: a slice of ours that
fell behind is brought up to date instead of replaced, and a generation that never was complete is completed instead of
raised again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from typing import Final

from driver.slices.content import up_to_date
from driver.slices.matching import BEYOND, Matching
from driver.slices.model import Pool
from driver.slices.stored import Stored
from node.values import Value, value

_HIGHEST: Final = 2**63 - 1


@value
class Knowledge(Value):
    """What the controller remembers of a pool.

    ``ours``: uids of slices that it has written or found in order: they may be changed though they fell behind.
    ``unfinished``: the generation that it began and has not completed, 0 for none. ``refused``: indexes of wanted
    slices that break a rule and are not to be sent.
    """

    ours: Set[str] = frozenset()
    unfinished: int = 0
    refused: Set[int] = frozenset()


@value
class Plan(Value):
    """The writes, in their order. ``generation`` is the one that they carry."""

    generation: int
    excess: tuple[Stored, ...] = ()
    updates: tuple[tuple[int, Stored], ...] = ()
    creates: tuple[int, ...] = ()
    superseded: tuple[Stored, ...] = ()
    """To be deleted when all else of the plan is done."""
    left_behind: tuple[tuple[int, Stored], ...] = ()
    """Slices whose new content is refused, to be deleted when other slices of the generation are stored."""
    incomplete: bool = False
    """The generation never was complete, so nobody uses what is stored of it with old content."""
    exhausted: bool = False
    """A higher generation is needed than there is: only the deletions are in the plan."""
    raised: bool = False
    """The generation is higher than any that is stored."""
    matched: Mapping[int, Stored] = field(default_factory=dict)
    """The stored slice of each wanted one."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.excess or self.updates or self.creates or self.superseded or self.left_behind)


def removal(stored: Sequence[Stored]) -> Plan:
    """The plan for a pool that nobody wants."""
    return Plan(generation=0, excess=tuple([each for each in _by_name(stored) if not each.leaving]))


def plan(stored: Sequence[Stored], name: str, pool: Pool, matching: Matching, knowledge: Knowledge) -> Plan:
    """What brings the stored slices of the pool ``name`` to what is wanted; nothing when they are there."""
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
        # Nothing of the new generation can be sent.
        generation, raised = highest, False
    if generation > _HIGHEST:
        return Plan(highest, excess=excess, exhausted=True, matched=matched)
    left = [(index, matched[index]) for index in sorted(changed & knowledge.refused)]
    incomplete = raised or 0 < knowledge.unfinished == generation
    return Plan(
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
    stored: Sequence[Stored], pool: Pool, matching: Matching, knowledge: Knowledge, highest: int
) -> tuple[dict[int, Stored], tuple[Stored, ...], tuple[Stored, ...]]:
    """The stored slice of each wanted one; what is too many; what belongs to older generations and other layouts."""
    usable = [each for each in stored if each.generation == highest or each.uid in knowledge.ours]
    indexes = matching.match(usable, pool.slices)
    candidates: defaultdict[int, list[Stored]] = defaultdict(list)
    for each in usable:
        if each.name in indexes:
            candidates[indexes[each.name]].append(each)
    excess = candidates.pop(BEYOND, [])
    matched: dict[int, Stored] = {}
    for index, several in candidates.items():
        first, *others = sorted(several, key=lambda each: (-each.generation, each.uid not in knowledge.ours, each.name))
        matched[index] = first
        excess += others
    known = {each.name for each in [*matched.values(), *excess]}
    superseded = [each for each in _by_name(stored) if each.name not in known and not each.leaving]
    return matched, tuple([each for each in _by_name(excess) if not each.leaving]), tuple(superseded)


def _creatable(pool: Pool, matched: Mapping[int, Stored], refused: Set[int]) -> tuple[int, ...]:
    """The missing slices before the first that is refused, be that one stored or not.

    A pool is built from its beginning, and one that lacks a slice is not used: what would come behind the gap is of no
    use to anybody, and an old slice that cannot be replaced is worth more while all of its generation are there.
    """
    first = min(refused, default=len(pool.slices))
    return tuple([index for index in range(first) if index not in matched])


def _generation(highest: int, asked: int, unfinished: int, *, more: bool) -> int:
    """The generation to write. ``more``: there is more to it than one slice that changes in place."""
    if asked > highest:
        return asked
    if not more or (highest > 0 and unfinished == highest):
        return highest
    return highest + 1


def _by_name(stored: Sequence[Stored]) -> list[Stored]:
    return sorted(stored, key=lambda each: each.name)
