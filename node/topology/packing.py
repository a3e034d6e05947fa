"""Buddy best-fit on the cell tree: which free devices to give, so that requests get islands and islands stay whole.

Pure. A tree's leaves are GPUs (or, by the same rule, physical functions of NICs); each has *units* that can be given:
one for a whole GPU, several where a GPU or a function is divided. The choice is the least by this key:

1. the smallest cell that has enough free units and holds what is required: the *host*;
2. of equal hosts the one whose leaves are nearest to what the units should be near to, where that is given: the least
   total distance of as many units;
3. of these the one with the fewest free units in it, then in its parent, its grandparent, up to the root: what is split
   already is split further before anything whole is;
4. in the host the fewest leaves, then the fewest units left over on them (divided GPUs are packed);
5. the highest link score of the chosen leaves;
6. the least total distance of the chosen leaves;
7. the least link score taken from the leaves that stay free;
8. the lowest leaves, in the order of the tree.

A single unit is so as near as one can be, and several get an island as small as without a distance, if not the fullest.

Units that another door has allocated count as free in rules 3, 4 and 7: what is begun there is not what is begun here,
so that two doors which take from opposite ends meet only when little is left.

Exact wherever a table of all sets is affordable (cells of up to 16 scored leaves); a larger host, or one without
scores, is filled child by child under rules 1 and 3 again. Scores are tables made once for each topology, because the
kubelet asks in the one thread that admits pods.

The link score of a set is the sum over its pairs of the score that NVIDIA's device plugin made known: what PCIe gives
(10 across sockets to 60 on one board) plus 100 for every link between the two. NVIDIA's own scoring (go-gpuallocator)
sees no link on machines with NVLink switches, because the links end at a switch there; ``link_count`` sees as many as
the GPU with fewer has.

NICs that go with given GPUs are chosen by distance alone (``nearest``). Distances in a PCIe tree are an ultrametric, so
taking the nearest pair again and again gives the least total distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations
from operator import itemgetter

from node.topology.model import Cell, CellLevel, Place, Proximity, link_count, proximity
from node.values import Value, value

Units = Sequence[int]
"""A number for each leaf, in the order of the tree."""


@value
class _Spot(Value):
    """A cell as the range of its leaves, ``start`` up to but without ``stop``."""

    start: int
    stop: int
    children: tuple[_Spot, ...]
    table: ScoreTable | None

    @property
    def size(self) -> int:
        return self.stop - self.start


class CellTree:
    """A cell tree made ready for choosing; ``leaves`` are its GPUs in the order of the tree.

    ``places`` has what pair scores need; a cell with a leaf that has no place there is not scored.
    """

    def __init__(self, root: Cell, places: Mapping[str, Place] | None = None) -> None:
        self.leaves: tuple[str, ...] = tuple(_leaves(root))
        self._root = self._spot(root, 0, None, places or {})
        # Every cell with itself and those around it, inner ones first.
        self._chains = tuple(_chains(self._root, ()))
        self._depth = max(len(chain) for chain in self._chains)

    def choose(self, free: Units, required: Units, size: int, far: Units = (), others: Units = ()) -> list[int]:
        """How many units to take of each leaf: ``size`` in all, ``required`` among them.

        ``free`` counts the required ones, too. ``far``: every leaf's distance (``Proximity.rank``) from what the units
        should be near to, empty for nothing. ``others``: units that are not free because another door has them. Raises
        ``ValueError`` for what cannot be: more than is free, more required than ``size``, or a leaf with more required
        than free.
        """
        if not sum(required) <= size <= sum(free) or any(map(int.__gt__, required, free)):
            raise ValueError(f"{size} units of {sum(free)} free ones, {sum(required)} of them required, cannot be")
        ours = [some + elsewhere for some, elsewhere in zip(free, others, strict=True)] if others else free
        hosts = self._hosts(free, required, size, far, ours)
        if hosts[0].table is None:
            picks = list(required)
            spare = [some - fixed for some, fixed in zip(free, required, strict=True)]
            _descend(hosts[0], spare, picks, size - sum(picks), others or [0] * len(spare))
            return picks
        found = (_best_set(host, host.table, free, required, size, far=far, ours=ours) for host in hosts if host.table)
        _, best = min(found, key=itemgetter(0))
        return _taken(best, free, required, size)

    def _hosts(self, free: Units, required: Units, size: int, far: Units, ours: Units) -> list[_Spot]:
        """The best hosts by rules 1 to 3, in the order of the tree; several where only position tells them apart.

        ``ours``: units that are free or another door's.
        """
        sums = [0, *accumulate(free)]
        wide = [0, *accumulate(ours)]
        fixed = [leaf for leaf, count in enumerate(required) if count]
        low, high = (fixed[0], fixed[-1]) if fixed else (len(free), -1)
        fitting = [
            chain
            for chain in self._chains
            if sums[chain[0].stop] - sums[chain[0].start] >= size and chain[0].start <= low and high < chain[0].stop
        ]
        smallest = min(chain[0].size for chain in fitting)
        ranked: dict[tuple[int, ...], list[_Spot]] = {}
        for chain in fitting:
            if chain[0].size == smallest:
                counts = [wide[spot.stop] - wide[spot.start] for spot in chain]
                distance = _distance(chain[0], free, required, size, far) if far else 0
                key = (distance, *counts, *[wide[-1]] * (self._depth - len(chain)))
                ranked.setdefault(key, []).append(chain[0])
        return ranked[min(ranked)]

    def _spot(self, cell: Cell, start: int, table: ScoreTable | None, places: Mapping[str, Place]) -> _Spot:
        gpus = self.leaves[start : start + len(cell.gpus)]
        if table is None and len(gpus) <= LARGEST_TABLE and all(gpu in places for gpu in gpus):
            table = score_table(pair_scores([places[gpu] for gpu in gpus]), start)
        children: list[_Spot] = []
        position = start
        for child in _parts(cell):
            children.append(self._spot(child, position, table, places))
            position = children[-1].stop
        # A cell of one child is that child: two of equal size would make the smallest one ambiguous.
        return children[0] if len(children) == 1 else _Spot(start, start + len(gpus), tuple(children), table)


def _parts(cell: Cell) -> tuple[Cell, ...]:
    """The parts of a cell; a cell of several GPUs that names no parts consists of these."""
    if cell.children or len(cell.gpus) <= 1:
        return cell.children
    return tuple(Cell(gpu, CellLevel.GPU, (gpu,)) for gpu in cell.gpus)


def _leaves(cell: Cell) -> Iterator[str]:
    """GPUs so that those of every cell follow each other."""
    if not cell.children:
        yield from cell.gpus
    for child in cell.children:
        yield from _leaves(child)


def _chains(spot: _Spot, around: tuple[_Spot, ...]) -> Iterator[tuple[_Spot, ...]]:
    chain = (spot, *around)
    for child in spot.children:
        yield from _chains(child, chain)
    yield chain


_Rank = tuple[int, int, int, int, int]


def _distance(host: _Spot, free: Units, required: Units, size: int, far: Units) -> int:
    """The least total distance of ``size`` units in the host, the required ones among them."""
    leaves = range(host.start, host.stop)
    spare = sorted(far[leaf] for leaf in leaves for _ in range(free[leaf] - required[leaf]))
    return sum(far[leaf] * required[leaf] for leaf in leaves) + sum(spare[: size - sum(required)])


def _best_set(
    host: _Spot, table: ScoreTable, free: Units, required: Units, size: int, *, far: Units, ours: Units
) -> tuple[_Rank, int]:
    """The best set of leaves in ``host`` by rules 4 to 8 as a mask, and its rank by rules 4 to 7 (less is better)."""
    fixed = [leaf for leaf in range(host.start, host.stop) if required[leaf]]
    others = [leaf for leaf in range(host.start, host.stop) if free[leaf] and not required[leaf]]
    have = sum(free[leaf] for leaf in fixed)
    extra = _fewest([free[leaf] for leaf in others], size - have)
    base = sum(1 << leaf for leaf in fixed)
    sets: Iterable[tuple[int, ...]]
    if any(ours[leaf] > 1 for leaf in others):
        waste, sets = _tightest(others, extra, free, size - have, ours)
    else:
        # Combinations come in the order of the tree, which is rule 8: the first of several best ones is taken.
        waste, sets = have + extra - size, combinations([1 << leaf for leaf in others], extra)
    masks = [base + sum(bits) for bits in sets]
    sums, first = table.sums, table.first
    if first:
        masks = [mask >> first for mask in masks]
    scores = [sums[mask] for mask in masks]
    score = max(scores)
    masks = [mask for mask, reached in zip(masks, scores, strict=True) if reached == score]
    distance = 0
    if far:
        distances = _sums(far[first : first + table.count])
        distance = min([distances[mask] for mask in masks])
        masks = [mask for mask in masks if distances[mask] == distance]
    everything = sum(1 << leaf - first for leaf in range(first, first + table.count) if ours[leaf])
    kept = [sums[everything ^ mask] for mask in masks]
    most = max(kept)
    rank = (len(fixed) + extra, waste, -score, distance, sums[everything] - most)
    return rank, masks[kept.index(most)] << first


def _sums(numbers: Units) -> list[int]:
    """The sum of every set of these numbers, by its mask."""
    sums = [0]
    for number in numbers:
        sums += [total + number for total in sums]
    return sums


def _fewest(units: Units, needed: int) -> int:
    """How many leaves it takes at least."""
    taken = 0
    for count in sorted(units, reverse=True):
        if needed <= 0:
            break
        needed -= count
        taken += 1
    return taken


def _tightest(
    others: Sequence[int], extra: int, free: Units, needed: int, ours: Units
) -> tuple[int, list[tuple[int, ...]]]:
    """Sets of ``extra`` leaves, as bits, that have enough units and as few more as can be; and how many more."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for leaves in combinations(others, extra):
        waste = sum([ours[leaf] for leaf in leaves]) - needed
        if sum([free[leaf] for leaf in leaves]) >= needed:
            found.setdefault(waste, []).append(tuple(1 << leaf for leaf in leaves))
    least = min(found)
    return least, found[least]


def _taken(mask: int, free: Units, required: Units, size: int) -> list[int]:
    """Units by leaf out of a set: leaves with required ones first, then those with fewest, so that one is left over."""
    picks = list(required)
    needed = size - sum(required)
    leaves = [leaf for leaf in range(len(free)) if mask >> leaf & 1]
    for leaf in sorted(leaves, key=lambda leaf: (not required[leaf], free[leaf], leaf)):
        taken = min(needed, free[leaf] - required[leaf])
        picks[leaf] += taken
        needed -= taken
    return picks


def _descend(spot: _Spot, spare: list[int], picks: list[int], needed: int, others: Units) -> None:
    """Move ``needed`` units from ``spare`` to ``picks``: out of the tightest child that has them, else the fullest.

    What ``others`` have counts as free where children are compared.
    """
    if not spot.children:
        picks[spot.start] += needed
        spare[spot.start] -= needed
        return
    # Children in which most is taken already go first, of those the ones that give most.
    left = sorted(spot.children, key=lambda child: (-_count(picks, child), -_count(spare, child)))
    while needed > (most := _count(spare, left[0])):
        _descend(left.pop(0), spare, picks, most, others)
        needed -= most
    touched = _count(picks, left[0])
    sufficient = [child for child in left if _count(picks, child) == touched and _count(spare, child) >= needed]
    tightest = min(sufficient, key=lambda child: _count(spare, child) + _count(others, child))
    _descend(tightest, spare, picks, needed, others)


def _count(units: Units, spot: _Spot) -> int:
    return sum(units[spot.start : spot.stop])


PER_LINK = 100
PER_PROXIMITY = {
    Proximity.SAME: 0,
    Proximity.PIX: 50,
    Proximity.PXB: 40,
    Proximity.PHB: 30,
    Proximity.NODE: 20,
    Proximity.SYS: 10,
}
"""Scores by PCIe; 60, for two GPUs on one board, needs a report of NVML, which no place has."""

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


def nearest(ranks: Sequence[Sequence[int]], free: Sequence[int], required: Sequence[int], size: int) -> list[int]:
    """How many units to take of each NIC for GPUs that are given already: ``size`` in all, ``required`` among them.

    Where fewer NICs are wanted than there are GPUs, those near most of them win, which spreads them over the sockets;
    where more are wanted, every GPU gets a second one before any gets a third.
    ``ranks``: for every GPU the distance to every NIC (``Proximity.rank``), at least one GPU. ``free`` counts the
    required ones, too. On equal terms a NIC that is not taken from yet wins, then the one with fewest free units, then
    the first. Raises ``ValueError`` where ``size`` is more than is free or less than is required.
    """
    if not sum(required) <= size <= sum(free):
        raise ValueError(f"{size} units of {sum(free)} free ones, {sum(required)} of them required, cannot be")
    picks = [0] * len(free)
    unserved: list[int] = []
    for step in range(size):
        if not unserved:
            unserved = list(range(len(ranks)))
        # What is required is taken in any case; taken first, the GPUs near it count as served.
        limit = required if step < sum(required) else free
        nic = min(
            (nic for nic in range(len(free)) if picks[nic] < limit[nic]),
            key=lambda nic: (
                min(ranks[gpu][nic] for gpu in unserved),
                sum(ranks[gpu][nic] for gpu in unserved),
                picks[nic] > 0,
                free[nic],
                nic,
            ),
        )
        picks[nic] += 1
        unserved.remove(min(unserved, key=lambda gpu: (ranks[gpu][nic], gpu)))
    return picks
