"""Moves running pods to the devices that they really have, if a node gave them others than the record names.

A node may swap equal devices of two pods, or give a pod others of its own. The books must follow, because the devices
are in use there. What is moved is a set of pods at once, such as two that have each other's devices. A pod stays on its
node, and keeps its guarantee: the virtual cluster must have a cell of the same kind for the new devices, without
preempting anybody. A place of its own group that no pod has yet gives way to it. Otherwise the move is refused: all
groups keep their cells. The order of free cells and the bindings of bad parts may change even then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from scheduling.cells.decision import CellsUserError
from scheduling.cells.groups import AffinityGroup, AllocatedPod, GroupState
from scheduling.cells.leaves import allocate_leaf, release_leaf
from scheduling.cells.pod import BindInfo, CellPod, GroupMemberPlacement
from scheduling.cells.preassigned import judged_once
from scheduling.cells.recovery import virtual_for
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import CellState, PhysicalCell, VirtualCell


@dataclass(frozen=True, slots=True)
class PodMove:
    """A running pod, and the indices of the devices that it has, on the node where it is."""

    pod: CellPod
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _LeafMove:
    """One device of a pod that is to be another: its place in the group, and what it was bound to."""

    group: AffinityGroup
    pod: CellPod
    size: int
    position: int
    slot: int
    leaf: PhysicalCell
    virtual: VirtualCell | None
    target: PhysicalCell


def place_of(state: ClusterState, pod: CellPod) -> tuple[PhysicalCell, ...]:
    """The devices of a running pod; none if it has no place, or one that the configuration no longer has whole."""
    group = state.groups.get(pod.spec.group.name)
    position = None if group is None else _position(group, pod)
    if group is None or position is None:
        return ()
    leaves = [leaf for leaf in group.physical[pod.spec.leaf_cell_number][position] if leaf is not None]
    return tuple(leaves) if len(leaves) == pod.spec.leaf_cell_number else ()


def record_of(state: ClusterState, pod: CellPod) -> BindInfo | None:
    """The record of a running pod with the places that its group has now; None if it has none."""
    group = state.groups.get(pod.spec.group.name)
    position = None if group is None else _position(group, pod)
    if group is None or position is None:
        return None
    each = group.pods[pod.spec.leaf_cell_number][position]
    assert each is not None
    return _rewritten(group, each, position)


def move_pods(state: ClusterState, moves: Sequence[PodMove]) -> dict[str, BindInfo]:
    """Move all of these pods, or none; the new records of all pods of their groups by UID. Raises `CellsUserError`."""
    steps = [step for move in moves for step in _steps(state, move)]
    steps += _yielding(steps)
    _check_targets(moves, steps)
    with judged_once(state):
        for step in steps:
            release_leaf(state, step.leaf, step.virtual, step.group)
            step.leaf.used_by, step.leaf.state = None, CellState.FREE
        problem = _allocate(state, steps)
    if problem:
        raise CellsUserError(problem, 409)
    records: dict[str, BindInfo] = {}
    for group in dict.fromkeys(step.group for step in steps):
        for places in group.pods.values():
            for position, each in enumerate(places):
                if each is not None:
                    records[each.pod.uid] = info = _rewritten(group, each, position)
                    places[position] = AllocatedPod(each.pod, info)
    return records


def vacate(state: ClusterState, node: str, indices: Collection[int]) -> None:
    """Take these devices from places that no pod has: something runs on them. The places become unknown."""
    for leaf in state.leaves_by_node.get(node, ()):
        group = leaf.used_by
        if leaf.index not in indices or group is None or group.state is not GroupState.ALLOCATED:
            continue
        for size, places in group.physical.items():
            for position, leaves in enumerate(places):
                if leaf in leaves and group.pods[size][position] is None:
                    slot = leaves.index(leaf)
                    virtual = None if group.virtual is None else group.virtual[size][position][slot]
                    release_leaf(state, leaf, virtual, group)
                    leaf.used_by, leaf.state = None, CellState.FREE
                    leaves[slot] = None
                    if group.virtual is not None:
                        group.virtual[size][position][slot] = None


def _position(group: AffinityGroup, pod: CellPod) -> int | None:
    places = group.pods.get(pod.spec.leaf_cell_number, ())
    return next((n for n, each in enumerate(places) if each is not None and each.pod.uid == pod.uid), None)


def _steps(state: ClusterState, move: PodMove) -> Iterator[_LeafMove]:
    """The devices that a pod does not have, each with one that it has instead. Raises `CellsUserError`."""
    pod, size = move.pod, move.pod.spec.leaf_cell_number
    leaves = place_of(state, pod)
    if not leaves:
        raise CellsUserError(f"pod {pod.key} has no cells that the configuration still has")
    group = state.groups[pod.spec.group.name]
    position = _position(group, pod)
    assert position is not None
    if group.state is not GroupState.ALLOCATED:
        raise CellsUserError(f"the group {group.name!r} of pod {pod.key} is being preempted", 409)
    chain, node = leaves[0].chain, leaves[0].nodes[0]
    targets = [state.leaf_by_place.get((chain, node, index)) for index in sorted(move.indices)]
    found = [each for each in targets if each is not None]
    if len(found) != len(targets) or len(set(found)) != size:
        given = ",".join(map(str, move.indices))
        raise CellsUserError(f"GPU {given} of node {node} are not {size} devices of the cells {chain!r}")
    missing = [each for each in found if each not in leaves]
    virtual = None if group.virtual is None else group.virtual[size][position]
    for slot, leaf in enumerate(leaves):
        if leaf not in found:
            yield _LeafMove(
                group, pod, size, position, slot, leaf, None if virtual is None else virtual[slot], missing.pop(0)
            )


def _yielding(steps: Sequence[_LeafMove]) -> list[_LeafMove]:
    """Places of the same groups without pods that have devices of the pods: they get devices that these leave."""
    targets, left = {step.target for step in steps}, {step.leaf for step in steps}
    free = [step.leaf for step in steps if step.leaf not in targets]
    found: list[_LeafMove] = []
    for step in steps:
        if step.target in left or step.target.used_by is not step.group or step.target.reserved_by is not None:
            continue
        for size, places in step.group.physical.items():
            for position, leaves in enumerate(places):
                if step.target in leaves and step.group.pods[size][position] is None:
                    slot = leaves.index(step.target)
                    virtual = None if step.group.virtual is None else step.group.virtual[size][position][slot]
                    target = free.pop(0)
                    found.append(_LeafMove(step.group, step.pod, size, position, slot, step.target, virtual, target))
    return found


def _check_targets(moves: Sequence[PodMove], steps: Sequence[_LeafMove]) -> None:
    """Refuse devices that others have or reserve, and devices that two of the pods would get."""
    uids = [move.pod.uid for move in moves]
    twice = next((move.pod.key for move in moves if uids.count(move.pod.uid) > 1), "")
    if twice or not moves:
        raise CellsUserError(f"pod {twice} is named twice" if twice else "no pod is named")
    left = {step.leaf for step in steps}
    taken: set[PhysicalCell] = set()
    for step in steps:
        target = step.target
        user = target.used_by or target.reserved_by
        if target in taken or (user is not None and target not in left):
            whose = "another of these pods" if user is None or target in taken else f"the group {user.name!r}"
            where = f"GPU {target.index} of node {target.nodes[0]}"
            raise CellsUserError(f"pod {step.pod.key}: {where} belongs to {whose}", 409)
        if target.reserved_by is not None or step.leaf.reserved_by is not None:
            raise CellsUserError(f"pod {step.pod.key}: its devices are reserved by a group that preempts", 409)
        taken.add(target)


def _allocate(state: ClusterState, steps: Sequence[_LeafMove]) -> str:
    """Give the pods what they have, or back what they had; why not, or nothing."""
    former = {step.leaf: step.virtual for step in steps}
    # What was bound and stays bound comes first: a new binding could take its virtual cell.
    ordered = sorted(steps, key=lambda step: _kept(step, former) is None)
    done: list[tuple[_LeafMove, VirtualCell | None]] = []
    problem = ""
    for step in ordered:
        virtual = None
        if step.virtual is not None:
            virtual = _bindable(state, step, step.target, _kept(step, former))
            if virtual is None:
                kind = step.virtual.root.kind
                where = f"GPU {step.target.index} of node {step.target.nodes[0]}"
                problem = (
                    f"pod {step.pod.key}: its virtual cluster {step.group.cluster!r} has no cell of type {kind!r} for"
                    f" {where} now"
                )
                break
        done.append((step, virtual))
        is_safe = allocate_leaf(state, step.target, virtual, step.group)
        if not is_safe:
            problem = f"pod {step.pod.key}: other virtual clusters need the cell of its devices"
            break
    if problem:
        for step, virtual in reversed(done):
            release_leaf(state, step.target, virtual, step.group)
        for step in steps:
            _give_back(state, step)
            step.leaf.used_by, step.leaf.state = step.group, CellState.USED
        return problem
    for step, virtual in done:
        step.target.used_by, step.target.state = step.group, CellState.USED
        step.group.physical[step.size][step.position][step.slot] = step.target
        if step.group.virtual is not None:
            step.group.virtual[step.size][step.position][step.slot] = virtual
    return ""


def _give_back(state: ClusterState, step: _LeafMove) -> None:
    """Undo a step whose device was released."""
    virtual = step.virtual
    if virtual is not None:
        virtual = _bindable(state, step, step.leaf, virtual)
        if step.group.virtual is not None:
            step.group.virtual[step.size][step.position][step.slot] = virtual
    allocate_leaf(state, step.leaf, virtual, step.group)


def _bindable(
    state: ClusterState, step: _LeafMove, leaf: PhysicalCell, wanted: VirtualCell | None
) -> VirtualCell | None:
    """The wanted virtual cell, or another of the same kind: a bad part of the cell may have been bound to that one."""
    below: PhysicalCell | None = leaf
    above = wanted
    while above is not None and below is not None:
        if above.physical not in {None, below} or below.virtual not in {None, above}:
            break
        above, below = above.parent, below.parent
    else:
        if wanted is not None:
            return wanted
    return (
        None
        if step.virtual is None
        else virtual_for(state, step.pod.spec, leaf, step.virtual.root.kind, preempts=False)
    )


def _kept(step: _LeafMove, former: dict[PhysicalCell, VirtualCell | None]) -> VirtualCell | None:
    """The virtual cell that a device was bound to, if the pod that has the device now may have it as well."""
    virtual, before = step.virtual, former.get(step.target)
    if virtual is None or before is None:
        return None
    is_same = (before.cluster, before.root.kind, before.root.pinned_id) == (
        virtual.cluster,
        virtual.root.kind,
        virtual.root.pinned_id,
    )
    return before if is_same else None


def _rewritten(group: AffinityGroup, each: AllocatedPod, own: int) -> BindInfo:
    """The record of a pod with the places that its group has now. Places on unknown devices stay as recorded."""
    counted: dict[int, int] = {}
    members = []
    for member in each.bind_info.members:
        placements = []
        for placement in member.pod_placements:
            size = len(placement.indices)
            position = counted[size] = counted.get(size, -1) + 1
            places = group.physical.get(size, [])
            leaves: Collection[PhysicalCell | None] = places[position] if position < len(places) else ()
            indices = tuple(leaf.index for leaf in leaves if leaf is not None)
            placements.append(replace(placement, indices=indices) if len(indices) == size else placement)
        members.append(GroupMemberPlacement(tuple(placements)))
    info = replace(each.bind_info, members=tuple(members))
    leaves = group.physical[each.pod.spec.leaf_cell_number][own]
    indices = tuple(leaf.index for leaf in leaves if leaf is not None)
    return replace(info, leaf_cell_isolation=indices) if len(indices) == len(leaves) else info
