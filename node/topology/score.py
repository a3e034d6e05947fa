"""How well GPUs work together, as a number: the pair score that NVIDIA's device plugin made known, NVSwitch included.

The score of a pair is what PCIe gives (10 across sockets to 60 on one board) plus 100 for every link between the two;
the score of a set is the sum over its pairs. NVIDIA's own scoring (go-gpuallocator) sees no link on machines with
NVLink switches, because the links end at a switch there; ``link_count`` sees as many as the GPU with fewer has.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.topology.distance import link_count, proximity
from node.topology.model import Place, Proximity
from node.values import Value, value

PER_LINK = 100
PER_PROXIMITY = {
    Proximity.SAME: 0,
    Proximity.PIX: 50,
    Proximity.PXB: 40,
    Proximity.PHB: 30,
    Proximity.NODE: 20,
    Proximity.SYS: 10,
}
"""What PCIe gives; 60, for two GPUs on one board, needs NVML's word and no place has it."""

Scores = tuple[tuple[int, ...], ...]
"""Scores of pairs, by the numbers of their GPUs: symmetric, 0 on the diagonal."""


def pair_score(a: Place, b: Place) -> int:
    """The score of two GPUs; 0 for a GPU and itself."""
    if a.name == b.name:
        return 0
    return PER_PROXIMITY[proximity(a, b)] + PER_LINK * link_count(a, b)


def pair_scores(places: Sequence[Place]) -> Scores:
    """The scores of all pairs."""
    return tuple(tuple(pair_score(a, b) for b in places) for a in places)


@value
class ScoreTable(Value):
    """The score of every set of ``count`` GPUs from number ``first`` on, by bit mask; bit 0 is ``first``."""

    first: int
    count: int
    sums: Sequence[int]


LARGEST_TABLE = 16
"""GPUs of a table: 65,536 sets, 512 KiB, made in some 10 ms."""


def score_table(scores: Scores, first: int = 0) -> ScoreTable:
    """The table of GPUs from number ``first`` on; raises ``ValueError`` for more than ``LARGEST_TABLE``."""
    if len(scores) > LARGEST_TABLE:
        raise ValueError(f"a score table holds {LARGEST_TABLE} GPUs, not {len(scores)}")
    # Here and not above: nodes without several GPUs need none.
    from array import array

    sums = array("q", [0])
    for number, row in enumerate(scores):
        # Every set that has this GPU and none after it: as without it, and what it adds to each of those.
        gains = [0]
        for gain in row[:number]:
            gains += [other + gain for other in gains]
        sums.extend([old + gain for old, gain in zip(sums, gains, strict=True)])
    return ScoreTable(first, len(scores), sums)
