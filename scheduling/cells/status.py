"""What the scheduler of cells shows of itself: cells and groups as frozen values, with HiveD's words for states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CellStatus:
    """A cell and those below it. `leaf_cell_type` is given for top cells alone.

    `virtual_cluster`: who owns a physical cell now, "" for nobody. `counterpart`, without children: of a physical cell
    the virtual cell that is bound to it, of a virtual cell the physical one.
    """

    cell_type: str
    address: str
    is_node_level: bool
    state: str
    is_healthy: bool
    priority: int
    leaf_cell_type: str = ""
    children: tuple[CellStatus, ...] = ()
    virtual_cluster: str = ""
    counterpart: CellStatus | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """An affinity group: device indices by node, leaf cells by preassigned cell, and the UIDs of its pods.

    `lazy_preempted_by`: the group for which this one became opportunistic, "" for none.
    """

    name: str
    virtual_cluster: str
    priority: int
    state: str
    physical_placement: Mapping[str, tuple[int, ...]]
    virtual_placement: Mapping[str, tuple[str, ...]]
    allocated_pods: tuple[str, ...]
    preempting_pods: tuple[str, ...] = ()
    lazy_preempted_by: str = ""
