"""How many cells of each level there are, who owns them, and how many are left when all virtual clusters use theirs.

The rule of buddy allocation: cells of a level are left if they are not owned themselves and are not split for owned
cells below. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from scheduling.cells.configuration import CellsConfiguration, PhysicalCellSpec


@dataclass(frozen=True, slots=True)
class LevelOwnership:
    """Cells of one level: how many in all, owned by each virtual cluster, and left whole for nobody in particular."""

    cell_type: str
    leaves: int
    cells: int
    owners: tuple[tuple[str, int], ...]
    left: int


@dataclass(frozen=True, slots=True)
class ChainOwnership:
    """The levels of one chain, the top first."""

    name: str
    levels: tuple[LevelOwnership, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Rows for people."""
        return [
            (
                self.name if number == 0 else "",
                each.cell_type,
                str(each.leaves),
                str(each.cells),
                str(sum(count for _, count in each.owners)),
                str(each.left),
                ", ".join(f"{name} {count}" for name, count in each.owners) or "-",
            )
            for number, each in enumerate(self.levels)
        ]

    def document(self) -> dict[str, object]:
        """The same as plain data."""
        return {
            "chain": self.name,
            "levels": [
                {
                    "cellType": each.cell_type,
                    "gpus": each.leaves,
                    "cells": each.cells,
                    "owned": dict(each.owners),
                    "left": each.left,
                }
                for each in self.levels
            ],
        }


def ownership(configuration: CellsConfiguration) -> list[ChainOwnership]:
    """All chains in the order of the configuration."""
    pinned = _pinned(configuration)
    tops = Counter(cell.cell_type for cell in configuration.physical_cells)
    found = []
    for chain, count in tops.items():
        owned: dict[str, Counter[str]] = {}
        for name, spec in configuration.virtual_clusters.items():
            for each in spec.cells:
                if each.chain == chain:
                    owned.setdefault(each.preassigned_type, Counter())[name] += each.number
            for pin in spec.pinned:
                its_chain, kind = pinned[pin]
                if its_chain == chain:
                    owned.setdefault(kind, Counter())[name] += 1
        found.append(ChainOwnership(chain, tuple(_levels(configuration, chain, count, owned))))
    return found


def _levels(
    configuration: CellsConfiguration, chain: str, count: int, owned: dict[str, Counter[str]]
) -> list[LevelOwnership]:
    ladder = configuration.ladder(chain)[::-1]
    cells, left, found = count, count, []
    sizes = {ladder[-1]: 1}
    for kind in ladder[-2::-1]:
        below = configuration.cell_types[kind]
        sizes[kind] = sizes[below.child_type] * below.child_number
    for kind in ladder:
        owners = owned.get(kind, Counter())
        left -= owners.total()
        found.append(LevelOwnership(kind, sizes[kind], cells, tuple(sorted(owners.items())), left))
        if kind in configuration.cell_types:
            number = configuration.cell_types[kind].child_number
            cells, left = cells * number, left * number
    return found


def _pinned(configuration: CellsConfiguration) -> dict[str, tuple[str, str]]:
    """By pinned id the chain and the type of the cell."""
    found: dict[str, tuple[str, str]] = {}

    def look(chain: str, cell: PhysicalCellSpec) -> None:
        if cell.pinned_id:
            found[cell.pinned_id] = chain, cell.cell_type
        for child in cell.children:
            look(chain, child)

    for top in configuration.physical_cells:
        look(top.cell_type, top)
    return found
