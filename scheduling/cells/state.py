"""The one mutable state of the cell scheduler.

Who changes what: `building` fills it; `preassigned` keeps the free lists, the counters, the bad and the doomed cells;
`health` marks cells good or bad; `leaves` gives devices to groups and takes them back; `preemption`, `recovery` and
`scheduler` change the groups. Nothing else writes.

Invariants, for every chain and level:
- `total_left` is the number of cells that are free or part of a free cell of a higher level.
- `all_vc_free` is the sum of `vc_free` over the virtual clusters, and is never above `total_left` (VC safety), except
  between the loss of cells by a new configuration and the lazy preemption that it causes.
- `bad_free` holds the bad ones among those that `total_left` counts.
- `doomed` holds preassigned cells that a virtual cluster is bound to only because nothing healthy is left for it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.groups import AffinityGroup
from scheduling.cells.placing import ClusterView
from scheduling.cells.tree import CellList, PhysicalCell, VirtualCell


@dataclass(slots=True)
class Chain:
    """All physical cells of one top type. Lists are by level; index 0 is unused."""

    name: str
    types: tuple[str, ...]  # by level, the leaf type first
    full: list[list[PhysicalCell]]
    free: list[CellList]
    bad_free: list[CellList]
    total_left: list[int]
    all_vc_free: list[int]
    opportunistic: ClusterView[PhysicalCell]
    vc_free: dict[str, list[int]] = field(default_factory=dict)
    doomed: dict[str, list[CellList]] = field(default_factory=dict)

    @property
    def top(self) -> int:
        """The highest level."""
        return len(self.types)

    @property
    def leaf_type(self) -> str:
        """The type of its devices."""
        return self.types[0]

    def level_of(self, kind: str) -> int:
        """The level of a type, or 0."""
        return self.types.index(kind) + 1 if kind in self.types else 0


@dataclass(slots=True)
class VirtualTree:
    """Preassigned cells of one chain, or one pinned cell, of a virtual cluster."""

    chain: str
    preassigned: list[list[VirtualCell]]  # by level
    view: ClusterView[VirtualCell]


@dataclass(slots=True)
class VirtualCluster:
    """What one virtual cluster owns."""

    name: str
    roots: list[VirtualCell]
    trees: dict[str, VirtualTree]  # by chain
    pinned: dict[str, VirtualTree]  # by pinned cell id


@dataclass(slots=True)
class ClusterState:
    """Everything that the scheduler knows."""

    configuration: CellsConfiguration
    chains: dict[str, Chain]
    clusters: dict[str, VirtualCluster]
    leaves_by_node: dict[str, list[PhysicalCell]]
    leaf_by_place: dict[tuple[str, str, int], PhysicalCell]  # chain, node, device index
    chains_by_leaf_type: dict[str, list[Chain]]  # ascending
    groups: dict[str, AffinityGroup] = field(default_factory=dict)
    unjudged: dict[tuple[str, int], bool] | None = None  # chain and level whose doomed cells are judged later
    opportunistic_leaves: dict[str, dict[PhysicalCell, None]] = field(default_factory=lambda: defaultdict(dict))
