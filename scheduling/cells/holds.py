"""Holds: a group has its cells before it has pods, and between them.

Who admits jobs (Kueue) decides before pods exist. A hold gives the group of a job its cells at that moment, by the
rules by which its first pod would get them. Pods of the group then join it. The group is deleted when neither a hold
nor a pod needs it.

A hold is as strong as the pods that it waits for, and no stronger:
- A group that could preempt those pods takes the cells at once, since nothing runs there. So does a pod that is bound
  to them: what runs counts.
- If a group has to preempt pods, its hold reserves the cells as a preempting pod does. Its pods ask for the victims.
- When a stronger group reserves cells of a group with pods, the hold ends, so that the last victim ends the group.

No call reports that a hold has ended in this way: ask `hold_problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scheduling.cells.decision import CellsUserError, Decision, Phase, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.gangs import candidate_chains
from scheduling.cells.groups import AffinityGroup, GroupState
from scheduling.cells.leaves import delete_group
from scheduling.cells.pod import BindInfo, CellPod, PodSchedulingSpec
from scheduling.cells.preemption import cancel_reservation
from scheduling.cells.recovery import restore_group
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import LOWEST_GUARANTEED, Cell, PhysicalCell, VirtualCell


def hold_group(state: ClusterState, pod: CellPod, schedule: Callable[[Phase], Decision]) -> Decision:
    """Hold cells for a group that does not exist yet. Raises `CellsUserError`."""
    group = state.groups.get(pod.spec.group.name)
    if group is not None:
        user = "is held already" if group.holder else "still has pods"
        raise CellsUserError(
            f"affinity group {group.name!r} {user}; wait until it is gone, or give this one another name", 409
        )
    decision = schedule(Phase.FILTERING)
    if isinstance(decision, PodPreempting):
        decision = schedule(Phase.PREEMPTING)
    if isinstance(decision, PodPlaced):
        restore_group(state, pod, decision.bind_info).holder = pod.uid
    elif isinstance(decision, PodPreempting):
        state.groups[pod.spec.group.name].holder = pod.uid
    return decision


def restore_hold(
    state: ClusterState, pod: CellPod, info: BindInfo | None, schedule: Callable[[Phase], Decision]
) -> None:
    """Hold the group of pods that were restored, or the recorded cells, or any if none are recorded.

    Raises `CellsUserError`.
    """
    group = state.groups.get(pod.spec.group.name)
    if group is None:
        if info is not None:
            restore_group(state, pod, info, ends_holds=False).holder = pod.uid
            return
        decision = hold_group(state, pod, schedule)
        if isinstance(decision, PodWaiting):
            raise CellsUserError(decision.reason)
    elif group.holder not in {"", pod.uid}:
        raise CellsUserError(f"affinity group {group.name!r} is held by another; give this one another name", 409)
    elif group.state is GroupState.BEING_PREEMPTED:
        raise CellsUserError(f"affinity group {group.name!r} is being preempted; wait until it is gone", 409)
    else:
        group.holder = pod.uid
        if group.state is GroupState.PREEMPTING:
            group.preempting[pod.uid] = pod


def end_hold(state: ClusterState, pod: CellPod) -> None:
    """End a hold; a group without pods is deleted."""
    group = _held(state, pod)
    if group is None:
        return
    group.holder = ""
    if group.state is GroupState.PREEMPTING:
        group.preempting.pop(pod.uid, None)
        if not group.preempting:
            cancel_reservation(state, group)
    elif not any(group.allocated()):
        delete_group(state, group)


def hold_problem(state: ClusterState, pod: CellPod) -> str:
    """Why the hold is worth nothing any more: it has ended, or its pods would come to bad cells. Empty if it holds."""
    group = _held(state, pod)
    if group is None:
        return "a stronger group, or a pod that runs there, has taken its cells"
    if any(group.allocated()):
        return ""
    places = [leaf for pods in group.physical.values() for leaves in pods for leaf in leaves]
    if any(leaf is None for leaf in places):
        return "the configuration no longer has all of its cells"
    bad = sorted({leaf.nodes[0] for leaf in places if leaf is not None and not leaf.healthy})
    return f"its cells on node {', '.join(bad)} are bad" if bad else ""


def never_fits(state: ClusterState, spec: PodSchedulingSpec) -> str:
    """Why a gang cannot fit even if nothing else runs, empty if it may. Raises `CellsUserError` as a pod would."""
    needed = sum(each.pod_number * each.leaf_cell_number for each in spec.group.members)
    largest = max(each.leaf_cell_number for each in spec.group.members)
    owned = node = 0
    for roots in _owned(state, spec):
        owned = max(owned, sum(each.leaf_count for each in roots))
        node = max(node, max((_node_size(each) for each in roots), default=0))
    owner = f"virtual cluster {spec.virtual_cluster!r}" if spec.priority >= LOWEST_GUARANTEED else "the cluster"
    if needed > owned:
        return f"it asks for {needed} leaf cells, and {owner} has at most {owned} that can hold one gang"
    if largest > node:
        return f"a pod asks for {largest} leaf cells, and {owner} has at most {node} on one node"
    return ""


def _owned(state: ClusterState, spec: PodSchedulingSpec) -> Iterator[list[PhysicalCell] | list[VirtualCell]]:
    """The cells of each place that could hold the whole gang."""
    cluster = state.clusters.get(spec.virtual_cluster)
    if cluster is None:
        return
    if spec.pinned_cell_id:
        if tree := cluster.pinned.get(spec.pinned_cell_id):
            yield [root for roots in tree.preassigned for root in roots]
        return
    for chain in candidate_chains(state, spec):
        if spec.priority < LOWEST_GUARANTEED:
            yield chain.full[chain.top]
        else:
            yield [root for roots in cluster.trees[chain.name].preassigned for root in roots]


def _node_size(cell: Cell) -> int:
    """The devices that a cell has on one node."""
    while cell.level > cell.node_level:
        cell = cell.children[0]
    return cell.leaf_count


def _held(state: ClusterState, pod: CellPod) -> AffinityGroup | None:
    group = state.groups.get(pod.spec.group.name)
    return group if group is not None and group.holder == pod.uid else None
