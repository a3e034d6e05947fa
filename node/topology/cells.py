"""The cell tree: which GPUs belong together, from the node down to single GPUs, and where each NIC belongs.

Pure and deterministic. The children of a cell partition its GPUs. A level is there only where it says something: no
cell has the GPUs of its only child, except the node of a single GPU.

Links go before PCIe: where NVLink or XGMI joins some GPUs of a cell more than others, its parts are those that links
make; parts that no links tell apart are gathered by what PCIe says of them (switch, host bridge, NUMA node). Links that
are the same for all say nothing, and neither does a GPU with a failed link to its NVSwitches: all that reach them are
equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from node.topology.distance import link_count, proximity
from node.topology.islands import Group, link_groups
from node.topology.model import Cell, CellLevel, Place, Proximity
from node.values import Value, value

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
    """What the tree needs to know of pairs of GPUs, by their numbers; computed once."""

    def __init__(self, gpus: Sequence[Place]) -> None:
        self.ranks = [[proximity(one, two).rank for two in gpus] for one in gpus]
        self.links = [[_weight(one, two) for two in gpus] for one in gpus]

    def spread(self, group: Group) -> int:
        """The rank of the two GPUs that are farthest apart."""
        return max(self.ranks[one][two] for one in group for two in group)


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
    wide = [draft for draft in drafts if nearness.spread(draft.gpus) > level.rank]
    classes: list[list[_Draft]] = []
    for draft in drafts:
        if draft in wide:
            continue
        for members in classes:
            if all(nearness.spread(_union((member, draft))) <= level.rank for member in members):
                members.append(draft)
                break
        else:
            classes.append([draft])
    found = wide + [members[0] if len(members) == 1 else _pcie(members, level) for members in classes]
    return sorted(found, key=lambda draft: draft.gpus)


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
