"""Where in a tree a gang goes: first the nodes, packed, then the closest devices on each node.

A view lists the cells that count as nodes: those of node level, and owned cells below it, each on its own. Its order is
kept from call to call: nodes that are equal keep the places that earlier calls gave them, as in HiveD.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from scheduling.cells.tree import FREE_PRIORITY, OPPORTUNISTIC, PhysicalCell, VirtualCell

C = TypeVar("C", PhysicalCell, VirtualCell)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a gang found no place. `node` is the node that stands in the way, "" if there is none."""

    reason: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Gang:
    """What is to be placed: the leaf numbers of its pods, ascending. `suggested` is None if any node will do."""

    sizes: tuple[int, ...]
    priority: int
    suggested: AbstractSet[str] | None


class _Node(Generic[C]):
    """A cell that counts as a node, and its figures for the present gang."""

    __slots__ = ("_change", "_uses", "cell", "free", "healthy", "key", "name", "suggested")

    def __init__(self, cell: C) -> None:
        self.cell: C = cell
        self.free = 0
        self.healthy = True
        self.suggested = True
        self.name = cell.address
        self.key: tuple[bool, bool, int, int] = (False, False, 0, 0)
        self._change = -1
        self._uses: dict[int, tuple[int, int, int]] = {}  # by priority, since the last change of the cell's uses

    def measure(self, gang: Gang, priority: int, *, pack: bool) -> None:
        """Update the figures and the sort key: healthy, suggested, most used, least used by the stronger."""
        cell = self.cell
        if self._change != cell.changes:
            self._change = cell.changes
            self._uses.clear()
        uses = self._uses.get(priority)
        if uses is None:
            uses = self._uses[priority] = _uses(cell, priority, pack=pack)
        self.free, same, higher = uses
        physical = cell.real
        if physical is None:
            self.healthy = self.suggested = True
            self.name = cell.address
        else:
            self.healthy = physical.healthy or physical.bad_leaves < physical.leaf_count
            if physical.bad_leaves and self.healthy:
                self.free = len(_available_leaves(cell, priority))
            self.name = physical.nodes[0]
            self.suggested = gang.suggested is None or self.name in gang.suggested
        self.key = (not self.healthy, not self.suggested, -same, higher)


def _uses(cell: PhysicalCell | VirtualCell, priority: int, *, pack: bool) -> tuple[int, int, int]:
    """The leaves of a cell that a priority may have, those in use that attract it, and those that repel it."""
    same = higher = taken = 0
    for each, number in cell.used.items():
        if each >= priority:
            taken += number
        if pack or each == priority:
            same += number
        elif each > priority:
            higher += number
    return cell.leaf_count - taken, same, higher


class ClusterView(Generic[C]):
    """The nodes of one tree list, in the order of the last call."""

    def __init__(self, levels: Sequence[Sequence[C]], node_level: int, *, pack_across_priorities: bool) -> None:
        """`levels` holds the tree's cells by level; index 0 is unused."""
        self._pack = pack_across_priorities
        self._nodes: list[_Node[C]] = []
        shown: set[C] = set()
        for level in range(min(node_level, len(levels) - 1), 0, -1):
            for cell in levels[level]:
                if cell.parent is None or cell.level == node_level or not _is_below(cell, shown):
                    self._nodes.append(_Node(cell))
                    shown.add(cell)

    def place(self, gang: Gang) -> list[list[C]] | Unplaced:
        """The leaves of each pod, or why there are none. Without preemption first, then with it."""
        priority = OPPORTUNISTIC
        chosen = self._choose_nodes(gang, priority)
        if isinstance(chosen, Unplaced) and gang.priority > OPPORTUNISTIC:
            priority = gang.priority
            chosen = self._choose_nodes(gang, priority)
        if isinstance(chosen, Unplaced):
            return chosen
        available: dict[C, list[C]] = {}
        placed: list[list[C]] = []
        for size, cell in zip(gang.sizes, chosen, strict=True):
            if cell not in available:
                available[cell] = _available_leaves(cell, priority)
            picked = _closest(available[cell], size)
            taken = set(picked)
            available[cell] = [each for each in available[cell] if each not in taken]
            placed.append(picked)
        return placed

    def _choose_nodes(self, gang: Gang, priority: int) -> list[C] | Unplaced:
        """The node of each pod, by a single scan of the sorted nodes."""
        nodes = self._nodes
        for node in nodes:
            node.measure(gang, priority, pack=self._pack)
        nodes.sort(key=attrgetter("key"))
        sizes = gang.sizes
        chosen: list[C] = []
        for node in nodes:
            picked = 0
            while node.free - picked >= sizes[len(chosen)]:
                if not node.healthy:
                    return Unplaced(f"the gang would have to use the bad node {node.name}", node.name)
                if not node.suggested:
                    return Unplaced(
                        f"the gang would have to use the node {node.name}, which is not suggested", node.name
                    )
                picked += sizes[len(chosen)]
                chosen.append(node.cell)
                if len(chosen) == len(sizes):
                    return chosen
        return Unplaced("insufficient capacity")


def _is_below(cell: C, shown: set[C]) -> bool:
    above = cell.parent
    while above is not None:
        if above in shown:
            return True
        above = above.parent
    return False


def _available_leaves(cell: C, priority: int) -> list[C]:
    """The healthy leaves that a priority may have: the free ones first, then those of weaker users."""
    free: list[C] = []
    preemptible: list[C] = []
    _collect(cell, priority, free, preemptible)
    return free + preemptible


def _collect(cell: C, priority: int, free: list[C], preemptible: list[C]) -> None:
    if not cell.children:
        if not cell.healthy:
            return
        if cell.priority == FREE_PRIORITY:
            free.append(cell)
        elif cell.priority < priority:
            preemptible.append(cell)
        return
    for child in cell.children:
        _collect(child, priority, free, preemptible)


def _closest(available: Sequence[C], number: int) -> list[C]:
    """The first leaves of that number, in the order given, whose lowest common cell is as low as possible."""
    above: list[C] = list(available)
    while True:
        groups: dict[C, list[C]] = {}
        for leaf, cell in zip(available, above, strict=True):
            groups.setdefault(cell, []).append(leaf)
        for leaves in groups.values():
            if len(leaves) >= number:
                return leaves[:number]
        above = [each.parent or each for each in above]


def lowest_common(leaves: Iterable[PhysicalCell]) -> PhysicalCell | None:
    """The lowest cell that holds all leaves, or None."""
    common: PhysicalCell | None = None
    for leaf in leaves:
        if common is None:
            common = leaf
            continue
        while common is not None and not _holds(common, leaf):
            common = common.parent
        if common is None:
            return None
    return common


def _holds(cell: PhysicalCell, leaf: PhysicalCell) -> bool:
    above: PhysicalCell | None = leaf
    while above is not None:
        if above is cell:
            return True
        above = above.parent
    return False
