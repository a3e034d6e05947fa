"""The scheduler's state as frozen values, in the shape of HiveD's inspect API.

`as_json` of a value has HiveD's keys, without those that are empty. A cell above the leaves is Used if any leaf is, and
in another state only if no leaf is used. A virtual leaf is Used only by its own cluster's guaranteed pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from scheduling.cells.groups import AffinityGroup
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import OPPORTUNISTIC, CellState, PhysicalCell, VirtualCell

_STRONGEST_FIRST = (CellState.USED, CellState.RESERVING, CellState.RESERVED)


class CellStatus(NamedTuple):
    """One cell and everything below it. `other` is the cell that it is bound to, without children."""

    kind: str
    leaf_type: str  # of top and preassigned cells, else ""
    is_node_level: bool
    address: str
    state: CellState
    healthy: bool
    priority: int
    children: tuple[CellStatus, ...] = ()
    virtual_cluster: str = ""
    other: CellStatus | None = None
    is_physical: bool = True

    def as_json(self) -> dict[str, Any]:
        """The status with HiveD's keys."""
        found: dict[str, Any] = {"leafCellType": self.leaf_type} if self.leaf_type else {}
        found["cellType"] = self.kind
        if self.is_node_level:
            found["isNodeLevel"] = True
        found |= {
            "cellAddress": self.address,
            "cellState": self.state.value,
            "cellHealthiness": "Healthy" if self.healthy else "Bad",
            "cellPriority": self.priority,
        }
        if self.children:
            found["cellChildren"] = [each.as_json() for each in self.children]
        if self.virtual_cluster and self.is_physical:
            found["vc"] = self.virtual_cluster
        if self.other is not None:
            found["virtualCell" if self.is_physical else "physicalCell"] = self.other.as_json()
        return found


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One affinity group."""

    name: str
    virtual_cluster: str
    priority: int
    state: str
    physical: Mapping[str, tuple[int, ...]]  # node -> device indices, ascending
    virtual: Mapping[str, tuple[str, ...]]  # preassigned cell -> leaves, ascending
    allocated: tuple[str, ...]  # UIDs
    preempting: tuple[str, ...]  # UIDs
    lazily_preempted_by: str = ""

    def as_json(self) -> dict[str, Any]:
        """The status with HiveD's keys."""
        found: dict[str, Any] = {"vc": self.virtual_cluster, "priority": self.priority, "state": self.state}
        optional: dict[str, Any] = {
            "physicalPlacement": {node: list(indices) for node, indices in self.physical.items()},
            "virtualPlacement": {cell: list(leaves) for cell, leaves in self.virtual.items()},
            "allocatedPods": list(self.allocated),
            "preemptingPods": list(self.preempting),
        }
        found |= {key: value for key, value in optional.items() if value}
        if self.lazily_preempted_by:
            found["lazyPreemptionStatus"] = {"preemptor": self.lazily_preempted_by}
        return {"metadata": {"name": self.name}, "status": found}


def group_status(group: AffinityGroup) -> GroupStatus:
    """The status of a group."""
    physical: dict[str, set[int]] = {}
    virtual: dict[str, set[tuple[int, str]]] = {}
    for leaf, cell in group.leaves():
        physical.setdefault(leaf.nodes[0], set()).add(leaf.index)
        if cell is not None:
            last = int(cell.address.rpartition("/")[2])
            virtual.setdefault(cell.root.address, set()).add((last, cell.address))
    return GroupStatus(
        name=group.name,
        virtual_cluster=group.cluster,
        priority=group.priority,
        state=group.state.value,
        physical={node: tuple(sorted(indices)) for node, indices in sorted(physical.items())},
        virtual={cell: tuple(address for _, address in sorted(leaves)) for cell, leaves in sorted(virtual.items())},
        allocated=tuple(sorted(each.pod.uid for each in group.allocated())),
        preempting=tuple(sorted(group.preempting)),
        lazily_preempted_by=group.lazily_preempted_by,
    )


def physical_status(state: ClusterState) -> tuple[CellStatus, ...]:
    """All top cells, by chain."""
    return tuple(
        _physical(cell, chain.leaf_type, is_shallow=False)
        for chain in state.chains.values()
        for cell in chain.full[chain.top]
    )


def cluster_names(state: ClusterState) -> list[str]:
    """The virtual clusters, with those that the configuration no longer has but whose pods were restored."""
    return [*state.clusters, *sorted(each for each in state.opportunistic_leaves if each not in state.clusters)]


def cluster_status(state: ClusterState, name: str) -> tuple[CellStatus, ...]:
    """A virtual cluster's preassigned cells, and the leaves that its opportunistic pods use."""
    roots = state.clusters[name].roots if name in state.clusters else []
    owned = tuple(_virtual(root, state.chains[root.chain].leaf_type, is_shallow=False) for root in roots)
    return owned + tuple(
        CellStatus(
            kind=leaf.kind,
            leaf_type=leaf.kind,
            is_node_level=False,
            address=f"{leaf.address}-opp",
            state=CellState.USED,
            healthy=leaf.healthy,
            priority=OPPORTUNISTIC,
            other=_physical(leaf, leaf.kind, is_shallow=True),
            is_physical=False,
        )
        for leaf in state.opportunistic_leaves.get(name, ())
    )


def _physical(cell: PhysicalCell, leaf_type: str, *, is_shallow: bool) -> CellStatus:
    children: tuple[CellStatus, ...] = ()
    if not is_shallow and cell.children:
        children = tuple([_physical(each, "", is_shallow=False) for each in cell.children])
    own = cell.used_by if cell.reserved_by is None else cell.reserved_by
    virtual = cell.virtual
    cluster = virtual.cluster if virtual is not None else own.cluster if own is not None else ""
    other = None if is_shallow or virtual is None else _virtual(virtual, "", is_shallow=True)
    return _status(cell, leaf_type, children, cluster, other)


def _virtual(cell: VirtualCell, leaf_type: str, *, is_shallow: bool) -> CellStatus:
    children: tuple[CellStatus, ...] = ()
    if not is_shallow and cell.children:
        children = tuple([_virtual(each, "", is_shallow=False) for each in cell.children])
    physical = cell.physical
    other = None if is_shallow or physical is None else _physical(physical, "", is_shallow=True)
    return _status(cell, leaf_type, children, cell.cluster, other)


def _status(
    cell: PhysicalCell | VirtualCell,
    leaf_type: str,
    children: tuple[CellStatus, ...],
    cluster: str,
    other: CellStatus | None,
) -> CellStatus:
    return CellStatus(
        kind=cell.kind,
        leaf_type=leaf_type,
        is_node_level=cell.level == cell.node_level,
        address=cell.address,
        state=_strongest([each.state for each in children]) if children else _state_of(cell),
        healthy=cell.healthy,
        priority=cell.priority,
        children=children,
        virtual_cluster=cluster,
        other=other,
        is_physical=isinstance(cell, PhysicalCell),
    )


def _state_of(cell: PhysicalCell | VirtualCell) -> CellState:
    if cell.children:
        return _strongest([_state_of(each) for each in cell.children])
    if isinstance(cell, PhysicalCell):
        return cell.state
    return CellState.FREE if cell.physical is None or cell.priority < 0 else cell.physical.state


def _strongest(states: list[CellState]) -> CellState:
    # A list is searched by identity; a set would call the enumeration's own hash for every state.
    for each in _STRONGEST_FIRST:
        if each in states:
            return each
    return CellState.FREE
