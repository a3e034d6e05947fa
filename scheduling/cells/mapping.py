"""Maps chosen virtual cells to physical ones: by the buddy rule for preassigned cells, within their parents for others.

The search works on copies of the free lists; nothing is taken here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from scheduling.cells.state import Chain
from scheduling.cells.tree import OPPORTUNISTIC, PhysicalCell, VirtualCell, swap_remove


@dataclass(slots=True)
class WantedCell:
    """A virtual cell that needs a physical one, with its parts that need one too."""

    cell: VirtualCell
    parts: list[WantedCell] = field(default_factory=list)


def wanted_cells(leaves: Iterable[VirtualCell]) -> tuple[list[WantedCell], list[list[WantedCell]]]:
    """The unbound cells above the leaves: preassigned ones, and those within bound parents, by parent."""
    roots: list[WantedCell] = []
    within: dict[VirtualCell, list[WantedCell]] = {}
    known: dict[VirtualCell, WantedCell] = {}
    for leaf in leaves:
        path: list[VirtualCell] = []
        cell: VirtualCell | None = leaf
        while cell is not None and cell.physical is None and cell not in known:
            path.append(cell)
            cell = cell.parent
        for each in reversed(path):
            known[each] = wanted = WantedCell(each)
            if each.parent is None:
                roots.append(wanted)
            elif each.parent.physical is not None:
                within.setdefault(each.parent, []).append(wanted)
            else:
                known[each.parent].parts.append(wanted)
    return roots, list(within.values())


class Mapper:
    """One search. `found` has the physical cell of each virtual one that was mapped."""

    def __init__(self, chain: Chain, suggested: AbstractSet[str] | None) -> None:
        self._chain = chain
        self._suggested = suggested
        self._free: list[list[PhysicalCell]] = []
        self._reserved = [0] * (chain.top + 1)  # roots mapped in this search, by level
        self.found: dict[VirtualCell, PhysicalCell] = {}

    def map(self, leaves: Sequence[VirtualCell]) -> bool:
        """Map the leaves and what is above them."""
        for leaf in leaves:
            if leaf.physical is not None:
                self.found[leaf] = leaf.physical
        roots, within = wanted_cells(leaves)
        if roots:
            self._free = [each.copy() for each in self._chain.free]
        for root in roots:
            if not self._map_root(root):
                return False
            self._reserved[root.cell.level] += 1
        for parts in within:
            parent = parts[0].cell.parent
            physical = None if parent is None else parent.physical
            if physical is None or self._map_cells(parts, physical.children) is None:
                return False
        return True

    def _map_root(self, root: WantedCell) -> bool:
        """A free cell for a preassigned one: of the lowest level that has any, else from any that may be split."""
        level = root.cell.level
        while level <= self._chain.top and not self._free[level]:
            level += 1
        if level > self._chain.top:
            return False
        if self._split_and_map(root, level):
            return True
        splittable = 0
        spare: dict[int, int] = {}
        for each in range(self._chain.top, root.cell.level, -1):
            splittable += len(self._free[each]) - self._chain.all_vc_free[each] + self._reserved[each]
            spare[each] = splittable
            splittable *= len(self._chain.full[each][0].children)
        return any(
            spare[each] > 0 and self._free[each] and self._split_and_map(root, each)
            for each in range(root.cell.level + 1, self._chain.top + 1)
        )

    def _split_and_map(self, root: WantedCell, level: int) -> bool:
        free = self._free
        if level == root.cell.level:
            picked = self._map_cells([root], free[level])
            for cell in picked or ():
                swap_remove(free[level], cell)
            return picked is not None
        below = free[level - 1]
        for cell in self._usable(free[level], 1):
            free[level - 1] = below + list(cell.children)
            if self._split_and_map(root, level - 1):
                swap_remove(free[level], cell)
                return True
        free[level - 1] = below
        return False

    def _usable(self, candidates: Iterable[PhysicalCell], number: int) -> list[PhysicalCell]:
        """The candidates that may be mapped, those with the fewest opportunistic devices first; none if too few."""
        suggested = self._suggested
        usable = [
            each
            for each in candidates
            if each.virtual is None
            and (each.healthy or each.level > each.node_level)
            and (suggested is None or any(node in suggested for node in each.nodes))
        ]
        if len(usable) < number:
            return []
        usable.sort(key=lambda each: each.used.get(OPPORTUNISTIC, 0))
        return usable

    def _map_cells(self, wanted: Sequence[WantedCell], candidates: Iterable[PhysicalCell]) -> list[PhysicalCell] | None:
        """A different candidate for each wanted cell, with their parts mapped below; None if there are none."""
        usable = self._usable(candidates, len(wanted))
        if not usable:
            return None
        picked: list[int] = []
        start = 0
        while True:
            each = wanted[len(picked)]
            for position in range(start, len(usable)):
                if position not in picked and self._map_into(each, usable[position]):
                    picked.append(position)
                    break
            else:
                if not picked:
                    return None
                start = picked.pop() + 1
                continue
            if len(picked) == len(wanted):
                return [usable[position] for position in picked]
            start = 0

    def _map_into(self, wanted: WantedCell, candidate: PhysicalCell) -> bool:
        if candidate.children and self._map_cells(wanted.parts, candidate.children) is None:
            return False
        self.found[wanted.cell] = candidate
        return True
