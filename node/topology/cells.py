"""Builds the cell tree: which GPUs belong together, from the node down to single GPUs, and where each NIC belongs.

Pure and deterministic; made once per snapshot. The children of a cell partition its GPUs. A level exists only where it
says something: no cell has the GPUs of its only child, except the node of a single GPU.

Links come before PCIe: where NVLink or XGMI joins some GPUs of a cell more than others, the links decide its parts;
parts that no links tell apart are gathered by PCIe (switch, host bridge, NUMA node). Links that are the same for all
say nothing, and neither does a GPU with a failed link to its NVSwitches: all that reach them are equal.

Uneven links are resolved one step at a time, from the coarsest groups down, on square matrices of links and PCIe ranks:
a hybrid cube mesh first gives its two quads, and a quad then its pairs. Going from the finest groups up would be
simpler and wrong: the eight double links of a cube mesh form a ring, and half of the ways to take pairs from it leave
no quads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from operator import attrgetter

from node.topology.model import Cell, CellLevel, Place, PlaceOverride, Proximity, Topology, link_count, proximity
from node.values import Value, replace, value

_PCIE_LEVELS = (Proximity.PIX, Proximity.PXB, Proximity.PHB, Proximity.NODE)


def cell_tree(places: Iterable[Place]) -> Cell | None:
    """The root of the tree over the GPUs among ``places``, with every NIC in one cell; None without GPUs.

    GPUs and cells come in the order of ``places``. Cost grows with the square of the GPUs and with GPUs times NICs.
    """
    everyone = tuple(places)
    gpus = tuple(place for place in everyone if place.gpu)
    if not gpus:
        return None
    nearness = Nearness(gpus)
    root = _node(_parts(tuple(range(len(gpus))), nearness))
    names = _names(root, gpus)
    nics = _attached(root, gpus, [place for place in everyone if not place.gpu])
    return _cell(root, gpus, names, nics)


class Nearness:
    """Links and PCIe ranks of all pairs of GPUs, by their numbers; computed once."""

    def __init__(self, gpus: Sequence[Place]) -> None:
        self.ranks = _symmetric(gpus, lambda one, two: proximity(one, two).rank)
        self.links = _symmetric(gpus, _weight)

    def is_within(self, group: Group, other: Group, rank: int) -> bool:
        """Whether every GPU of a group is at most this far from every one of the other."""
        for one in group:
            row = self.ranks[one]
            for two in other:
                if row[two] > rank:
                    return False
        return True


def _symmetric(gpus: Sequence[Place], of: Callable[[Place, Place], int]) -> Matrix:
    """The values of ``of`` for all pairs; each pair is asked once, since both directions are equal."""
    rows = [[0] * len(gpus) for _ in gpus]
    for first, one in enumerate(gpus):
        row = rows[first]
        for second in range(first, len(gpus)):
            row[second] = rows[second][first] = of(one, gpus[second])
    return rows


def _weight(one: Place, two: Place) -> int:
    """Links as the tree counts them: one wherever both reach switches, or a failed link would take a GPU out."""
    return 1 if one.switch_links and two.switch_links else link_count(one, two)


@value
class _Draft(Value):
    """A cell by the numbers of its GPUs."""

    level: CellLevel
    gpus: Group
    children: tuple[_Draft, ...] = ()


def _node(parts: tuple[_Draft, ...]) -> _Draft:
    return _Draft(CellLevel.NODE, _union(parts), parts)


def _union(parts: Iterable[_Draft]) -> Group:
    return tuple(sorted(number for part in parts for number in part.gpus))


def _parts(group: Group, nearness: Nearness) -> tuple[_Draft, ...]:
    """The children of the cell of these GPUs, in order."""
    drafts = [_linked(part, nearness) for part in link_groups(group, nearness.links, nearness.ranks)]
    for level in _PCIE_LEVELS:
        gathered = _gathered(drafts, level, nearness)
        if len(gathered) == 1:
            break
        drafts = gathered
    return tuple(drafts)


def _linked(group: Group, nearness: Nearness) -> _Draft:
    """The cell of GPUs that links hold together, or of a single one."""
    if len(group) == 1:
        return _Draft(CellLevel.GPU, group)
    level = CellLevel.PAIR if len(group) == 2 else CellLevel.ISLAND
    return _Draft(level, group, _parts(group, nearness))


def _gathered(drafts: list[_Draft], level: Proximity, nearness: Nearness) -> list[_Draft]:
    """Cells that are within ``level`` of each other made into one; a cell that is wider itself stays alone."""
    wide: list[_Draft] = []
    classes: list[list[_Draft]] = []
    for draft in drafts:
        if not nearness.is_within(draft.gpus, draft.gpus, level.rank):
            wide.append(draft)
            continue
        for members in classes:
            if all(nearness.is_within(member.gpus, draft.gpus, level.rank) for member in members):
                members.append(draft)
                break
        else:
            classes.append([draft])
    found = wide + [members[0] if len(members) == 1 else _pcie(members, level) for members in classes]
    return sorted(found, key=attrgetter("gpus"))


def _pcie(members: list[_Draft], level: Proximity) -> _Draft:
    kind = CellLevel.SOCKET if level is Proximity.NODE else CellLevel.SWITCH
    return _Draft(kind, _union(members), tuple(members))


def _names(root: _Draft, gpus: Sequence[Place]) -> dict[tuple[CellLevel, Group], str]:
    """Names by level and GPUs: a socket's number is its NUMA node where that is unique, others are counted."""
    numbers: Counter[CellLevel] = Counter()
    names: dict[tuple[CellLevel, Group], str] = {}
    sockets = [draft for draft in _walk(root) if draft.level is CellLevel.SOCKET]
    numa = {draft.gpus: {gpus[number].numa_node for number in draft.gpus} for draft in sockets}
    known = [next(iter(nodes)) for nodes in numa.values() if len(nodes) == 1 and None not in nodes]
    by_numa = len(known) == len(sockets) == len(set(known))
    for draft in _walk(root):
        number: int | None = numbers[draft.level]
        numbers[draft.level] += 1
        if draft.level is CellLevel.SOCKET and by_numa:
            number = next(iter(numa[draft.gpus]))
        names[draft.level, draft.gpus] = f"{draft.level}-{number}"
        if draft.level is CellLevel.NODE:
            names[draft.level, draft.gpus] = "node"
        elif draft.level is CellLevel.GPU:
            names[draft.level, draft.gpus] = gpus[draft.gpus[0]].name
    return names


def _walk(root: _Draft) -> Iterable[_Draft]:
    yield root
    for child in root.children:
        yield from _walk(child)


def _attached(root: _Draft, gpus: Sequence[Place], nics: Iterable[Place]) -> dict[tuple[CellLevel, Group], list[str]]:
    """NICs by the smallest cell that holds all GPUs they are nearest to."""
    found: dict[tuple[CellLevel, Group], list[str]] = {}
    for nic in nics:
        ranks = [proximity(nic, gpu).rank for gpu in gpus]
        nearest = {number for number, rank in enumerate(ranks) if rank == min(ranks)}
        draft = _smallest(root, nearest.issubset)
        found.setdefault((draft.level, draft.gpus), []).append(nic.name)
    return found


def _smallest(draft: _Draft, holds: Callable[[Group], bool]) -> _Draft:
    inner = next((child for child in draft.children if holds(child.gpus)), None)
    return draft if inner is None else _smallest(inner, holds)


def _cell(
    draft: _Draft,
    gpus: Sequence[Place],
    names: dict[tuple[CellLevel, Group], str],
    nics: dict[tuple[CellLevel, Group], list[str]],
) -> Cell:
    key = draft.level, draft.gpus
    return Cell(
        name=names[key],
        level=draft.level,
        gpus=tuple(gpus[number].name for number in draft.gpus),
        children=tuple(_cell(child, gpus, names, nics) for child in draft.children),
        nics=tuple(nics.get(key, ())),
    )


Group = tuple[int, ...]
Matrix = Sequence[Sequence[int]]

MAX_HALVED = 12
"""GPUs that are halved by trying every way (462 for twelve); machines with more have switches, or separate groups."""


def link_groups(group: Group, links: Matrix, ranks: Matrix) -> tuple[Group, ...]:
    """The coarsest groups that links make of ``group``, in order; single GPUs where links say nothing.

    Groups are what stays connected when the weakest links are left out: apart, or joined within all to all. If it is
    neither, the best two halves count.
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
    """GPUs that reach each other over pairs with at least that many links."""
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


def topology_of(
    places: Iterable[Place], overrides: Iterable[PlaceOverride] = (), previous: Topology | None = None
) -> Topology:
    """The topology of these places, which keep their order; an override for an address that is not here is left out.

    ``previous``: the previous topology, which is returned if nothing has moved.
    """
    moved = {override.address: override for override in overrides}
    everyone = tuple(_overridden(place, moved.get(place.address or "")) for place in places)
    present = {place.address for place in everyone}
    overridden = tuple(sorted(address for address in moved if address in present))
    if previous is not None and everyone == previous.places and overridden == previous.overridden:
        return previous
    return Topology(everyone, cell_tree(everyone), overridden)


def absent(places: Iterable[Place], overrides: Iterable[PlaceOverride]) -> tuple[str, ...]:
    """Addresses that overrides name and no place has: worth a remark, since one may be misspelt."""
    present = {place.address for place in places}
    return tuple(sorted({override.address for override in overrides} - {address for address in present if address}))


def _overridden(place: Place, override: PlaceOverride | None) -> Place:
    if override is None:
        return place
    numa = place.numa_node if override.numa_node is None else override.numa_node
    return replace(place, path=override.path, numa_node=numa)
