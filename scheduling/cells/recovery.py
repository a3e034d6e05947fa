"""Restores groups from the records of bound pods: after a restart, with the same configuration or with another.

Pods keep running whatever the configuration says now. Devices that it no longer has are ignored; a group whose
virtual cells cannot be found again, or would hurt the guarantees of others, runs on as an opportunistic one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scheduling.cells.decision import CellsUserError
from scheduling.cells.groups import AffinityGroup, GroupState, new_group
from scheduling.cells.leaves import allocate_leaf, delete_group
from scheduling.cells.pod import BindInfo, CellPod, PodPlacement, PodSchedulingSpec
from scheduling.cells.preassigned import end_doomed, is_doomed, is_free, judged_once
from scheduling.cells.preemption import cancel_reservation, idle_holds_of, preempt_lazily, reservers_of
from scheduling.cells.state import ClusterState, VirtualTree
from scheduling.cells.tree import LOWEST_GUARANTEED, CellState, PhysicalCell, VirtualCell, leaves_below, parts_below

MOST_DEVICES: Final = 1_000_000
"""Devices of one group that is restored, whatever its annotation asks for: each is kept in memory."""


@dataclass(frozen=True, slots=True)
class _RecordedLeaf:
    """One device of a record, as far as the configuration still has it."""

    leaf: PhysicalCell | None
    preassigned_type: str


def restore_group(state: ClusterState, pod: CellPod, info: BindInfo, *, ends_holds: bool = True) -> AffinityGroup:
    """Allocate the group of a bound pod as its record says. Raises `CellsUserError` before anything changes.

    ``ends_holds``: the group takes cells from holds without pods.
    """
    spec = pod.spec
    recorded = _recorded_leaves(state, pod, info, ends_holds=ends_holds)
    leaves_of_record = [each.leaf for pods in recorded.values() for leaves in pods for each in leaves if each.leaf]
    for other in reservers_of(leaves_of_record):
        cancel_reservation(state, other)
    for held in idle_holds_of(leaves_of_record):
        delete_group(state, held)
    group = new_group(spec, GroupState.ALLOCATED, {}, None)
    group.physical = {
        size: [[each.leaf for each in placement] for placement in placements] for size, placements in recorded.items()
    }
    is_guaranteed = spec.priority >= LOWEST_GUARANTEED and all(
        each.preassigned_type for pods in recorded.values() for leaves in pods for each in leaves if each.leaf
    )
    if is_guaranteed:
        group.virtual = {size: [[None] * len(leaves) for leaves in pods] for size, pods in group.physical.items()}
    must_be_opportunistic = False
    for size, pods in recorded.items():
        for position, leaves in enumerate(pods):
            for index, each in enumerate(leaves):
                if each.leaf is None:
                    continue
                with judged_once(state):
                    virtual = None
                    if is_guaranteed and not must_be_opportunistic:
                        virtual = virtual_for(state, spec, each.leaf, each.preassigned_type)
                        must_be_opportunistic = virtual is None
                    if group.virtual is not None:
                        group.virtual[size][position][index] = virtual
                    if not allocate_leaf(state, each.leaf, virtual, group):
                        must_be_opportunistic = True
                each.leaf.used_by = group
                each.leaf.state = CellState.USED
    state.groups[group.name] = group
    if must_be_opportunistic:
        preempt_lazily(state, group, group.name)
    return group


def _recorded_leaves(
    state: ClusterState, pod: CellPod, info: BindInfo, *, ends_holds: bool
) -> dict[int, list[list[_RecordedLeaf]]]:
    """The devices of the whole group by its record, padded to the group's size; conflicts are refused."""
    recorded: dict[int, list[list[_RecordedLeaf]]] = {}
    seen: set[PhysicalCell] = set()
    sizes = {each.leaf_cell_number: each.pod_number for each in pod.spec.group.members}
    for member in info.members:
        for placement in member.pod_placements:
            leaves = [
                _RecordedLeaf(find_leaf(state, info.cell_chain, placement.node, index), kind)
                for index, kind in zip(placement.indices, placement.preassigned_types, strict=True)
            ]
            for each in leaves:
                if each.leaf is None:
                    continue
                other = _owner(each.leaf, pod.spec.priority, ends_holds=ends_holds)
                if other is not None or each.leaf in seen:
                    owner = "the record itself, twice" if other is None else f"the group {other.name!r}"
                    raise CellsUserError(
                        f"pod {pod.key}: its record has device {each.leaf.index} of node {placement.node!r},"
                        f" which is used by {owner}; delete one of the pods"
                    )
                seen.add(each.leaf)
            recorded.setdefault(len(placement.indices), []).append(leaves)
    devices = sum(size * number for size, number in sizes.items())
    if devices > MOST_DEVICES:
        raise CellsUserError(
            f"pod {pod.key}: its group asks for {devices} devices; at most {MOST_DEVICES} are restored, delete the pod"
        )
    for size, number in sizes.items():
        missing = number - len(recorded.get(size, ()))
        if missing > 0:
            nothing = [_RecordedLeaf(None, "")] * size
            recorded.setdefault(size, []).extend([nothing] * missing)
    return {size: recorded[size] for size in sorted(recorded)}


def _owner(leaf: PhysicalCell, priority: int, *, ends_holds: bool) -> AffinityGroup | None:
    """The group that a new one of this priority cannot take a leaf from."""
    if leaf.used_by is not None and not (ends_holds and leaf.used_by.is_idle_hold):
        return leaf.used_by
    reserver = leaf.reserved_by
    return None if reserver is None or reserver.priority < priority else reserver


def find_leaf(state: ClusterState, chain: str, node: str, index: int) -> PhysicalCell | None:
    """The leaf of a device: in the recorded chain, else in any other."""
    found = state.leaf_by_place.get((chain, node, index))
    if found is None:
        found = next((leaf for leaf in state.leaves_by_node.get(node, ()) if leaf.index == index), None)
    return found


def virtual_for(
    state: ClusterState, spec: PodSchedulingSpec, leaf: PhysicalCell, preassigned_type: str, *, preempts: bool = True
) -> VirtualCell | None:
    """The virtual cell for a recorded leaf, or None if its cluster has none for it.

    ``preempts``: weaker groups lose their virtual cells for it, and doomed cells that are in the way end.
    """
    chain = state.chains[leaf.chain]
    level = chain.level_of(preassigned_type)
    cluster = state.clusters.get(spec.virtual_cluster)
    if not level or cluster is None:
        return None
    tree = cluster.pinned.get(spec.pinned_cell_id) if spec.pinned_cell_id else cluster.trees.get(leaf.chain)
    if tree is None or tree.chain != leaf.chain:
        return None
    if preempts:
        _end_strange_doom(state, leaf, spec, level)
    return _map_to_virtual(state, leaf, tree, level, spec, preempts=preempts)


def _end_strange_doom(state: ClusterState, leaf: PhysicalCell, spec: PodSchedulingSpec, level: int) -> None:
    """Free unused doomed cells that are in the way: above and below the preassigned cell of a leaf, and it itself."""
    cell: PhysicalCell | None = leaf
    while cell is not None:
        virtual = cell.virtual
        is_own = virtual is not None and virtual.cluster == spec.virtual_cluster and cell.level == level
        if not is_own or spec.pinned_cell_id:
            _end_unused(state, cell)
        if cell.level == level and virtual is None:
            for part in parts_below(cell):
                _end_unused(state, part)
        cell = cell.parent


def _end_unused(state: ClusterState, cell: PhysicalCell) -> None:
    virtual = cell.virtual
    if virtual is not None and is_doomed(state, cell) and virtual.priority < LOWEST_GUARANTEED:
        end_doomed(state, cell, virtual.cluster)


def _map_to_virtual(
    state: ClusterState, cell: PhysicalCell, tree: VirtualTree, level: int, spec: PodSchedulingSpec, *, preempts: bool
) -> VirtualCell | None:
    """The virtual cell that is, or can be, bound to a physical one."""
    virtual = cell.virtual
    if virtual is not None:
        fits = virtual.cluster == spec.virtual_cluster and virtual.root in tree.preassigned[level]
        return virtual if fits else None
    if cell.level == level:
        return _weakest(state, tree.preassigned[level], spec, preempts=preempts) if is_free(cell) else None
    if cell.parent is None:
        return None
    above = _map_to_virtual(state, cell.parent, tree, level, spec, preempts=preempts)
    return None if above is None else _weakest(state, above.children, spec, preempts=preempts)


def _weakest(
    state: ClusterState, cells: Sequence[VirtualCell], spec: PodSchedulingSpec, *, preempts: bool
) -> VirtualCell | None:
    """The first free cell, else the one with the weakest users, who are lazily preempted; None if all are as strong."""
    found = min(cells, key=lambda each: (each.priority, each.physical is not None), default=None)
    if found is None or found.priority >= spec.priority:
        return None
    if found.physical is not None and preempts:
        users = {leaf.used_by: None for leaf in leaves_below(found.physical) if leaf.used_by is not None}
        for user in users:
            if user.virtual is not None:
                preempt_lazily(state, user, spec.group.name)
    return found if found.physical is None else None


def recorded_position(info: BindInfo, size: int) -> int | None:
    """The place of a pod in its group, by its record."""
    for member in info.members:
        for position, placement in enumerate(member.pod_placements):
            if len(placement.indices) == size and _is_at(info, placement):
                return position
    return None


def _is_at(info: BindInfo, placement: PodPlacement) -> bool:
    return placement.node == info.node and info.leaf_cell_isolation[0] in placement.indices
