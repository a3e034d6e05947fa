"""GPUs grouped by the links between them, where these are uneven.

Pure. GPUs are numbers, links and PCIe ranks are square matrices. One step is made at a time, from the coarsest groups
down: a hybrid cube mesh first gives its two quads, and a quad then its pairs. Going from the finest groups up would be
simpler and wrong: the eight double links of a cube mesh form a ring, and half of the ways to take pairs from it leave
no quads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Group = tuple[int, ...]
Matrix = Sequence[Sequence[int]]

MAX_HALVED = 12
"""GPUs that are halved by trying every way (462 for twelve); machines with more have switches, or separate groups."""


def link_groups(group: Group, links: Matrix, ranks: Matrix) -> tuple[Group, ...]:
    """The coarsest groups that links make of ``group``, in order; single GPUs where links say nothing.

    Groups are what stays connected when the weakest links are left out: apart, or joined within all to all. Where it
    is neither, the best two halves are taken.
    """
    counts = sorted({links[one][two] for one, two in combinations(group, 2)})
    for least in counts[1:]:
        parts = _components(group, links, least)
        apart = least == counts[1] and counts[0] == 0
        if len(parts) > 1 and (apart or all(_complete(part, links, least) for part in parts)):
            return parts
        halves = _halves(group, links, ranks)
        if halves and all(len(_components(half, links, 1)) == 1 for half in halves):
            return halves
        if len(parts) > 1:
            return parts
    return tuple((number,) for number in group)


def _components(group: Group, links: Matrix, least: int) -> tuple[Group, ...]:
    """GPUs that reach each other over pairs with at least so many links."""
    left, found = list(group), []
    while left:
        reached, edge = {left[0]}, [left[0]]
        while edge:
            one = edge.pop()
            new = [two for two in left if two not in reached and links[one][two] >= least]
            reached.update(new)
            edge += new
        found.append(tuple(number for number in left if number in reached))
        left = [number for number in left if number not in reached]
    return tuple(found)


def _complete(group: Group, links: Matrix, least: int) -> bool:
    return all(links[one][two] >= least for one, two in combinations(group, 2))


def _halves(group: Group, links: Matrix, ranks: Matrix) -> tuple[Group, ...]:
    """The two halves with most links inside, then nearest over PCIe, then of the lowest numbers; none for odd sizes."""
    if len(group) % 2 or not 4 <= len(group) <= MAX_HALVED:
        return ()

    def worth(half: Group) -> tuple[int, int]:
        other = tuple(number for number in group if number not in half)
        pairs = [pair for part in (half, other) for pair in combinations(part, 2)]
        return sum(links[one][two] for one, two in pairs), -sum(ranks[one][two] for one, two in pairs)

    ways = ((group[0], *rest) for rest in combinations(group[1:], len(group) // 2 - 1))
    best = max(ways, key=worth)  # Of equals the first, which has the lowest numbers.
    return best, tuple(number for number in group if number not in best)
