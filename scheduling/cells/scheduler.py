"""The cell scheduler: decides where gangs go, and keeps track of what it has placed.

Calls are never concurrent. A refused call raises `CellsUserError` before anything changes. Deciding changes nothing
either, with two exceptions that HiveD has as well: in the preempting phase a group reserves its cells, and a group that
allows it is lazily preempted as soon as a stronger one wants its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from scheduling.cells.building import build
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError, Decision, Phase, PodPreempting, PodWaiting
from scheduling.cells.gangs import names_of, place_gang
from scheduling.cells.groups import AffinityGroup, AllocatedPod, GroupState, new_group
from scheduling.cells.health import set_node_health
from scheduling.cells.holds import end_hold, hold_group, hold_problem, never_fits, restore_hold
from scheduling.cells.leaves import delete_group
from scheduling.cells.moving import PodMove, move_pods, place_of, record_of, vacate
from scheduling.cells.placing import Unplaced
from scheduling.cells.pod import BindInfo, CellPod, PodSchedulingSpec
from scheduling.cells.preassigned import judged_once
from scheduling.cells.preemption import (
    cancel_reservation,
    idle_holds_of,
    reserve,
    reservers_of,
    use_reservation,
    victims_of,
)
from scheduling.cells.records import record_place, recorded_place
from scheduling.cells.recovery import recorded_position, restore_group
from scheduling.cells.state import ClusterState
from scheduling.cells.status import (
    CellStatus,
    GroupStatus,
    cluster_names,
    cluster_status,
    group_status,
    physical_status,
)
from scheduling.cells.tree import CellState


class CellScheduler:
    """One cluster of cells."""

    def __init__(self, configuration: CellsConfiguration) -> None:
        """All configured nodes are bad until `set_node` says otherwise."""
        self.state: ClusterState = build(configuration)
        for chain in self.state.chains.values():
            for cell in chain.full[chain.top]:
                for node in cell.nodes:
                    set_node_health(self.state, node, healthy=False)

    def set_node(self, name: str, *, healthy: bool, bad_devices: Collection[int] = ()) -> None:
        """A node exists, and is healthy but for some devices, or bad. Devices are given by index."""
        set_node_health(self.state, name, healthy=healthy, bad_devices=bad_devices)

    def delete_node(self, name: str) -> None:
        """A node is gone; its cells are bad."""
        set_node_health(self.state, name, healthy=False)

    def schedule(self, pod: CellPod, nodes: Collection[str], phase: Phase) -> Decision:
        """Decide where a pod goes. `nodes` are the suggested ones. Raises `CellsUserError`."""
        with judged_once(self.state):
            return self._decide(pod, nodes, phase)

    def _decide(self, pod: CellPod, nodes: Collection[str], phase: Phase) -> Decision:
        state = self.state
        suggested = frozenset(nodes)
        group = state.groups.get(pod.spec.group.name)
        if group is not None and group.state is GroupState.PREEMPTING:
            decision = self._continue_preemption(pod, group, suggested, phase)
            if decision is not None:
                return decision
        elif group is not None:
            return self._join(pod, group)
        found = place_gang(state, pod.spec, suggested)
        if isinstance(found, Unplaced):
            return PodWaiting(found.reason, {found.node: found.reason} if found.node else {})
        leaves = list(found.leaves())
        victims = victims_of(leaves)
        if phase is Phase.PREEMPTING:
            for other in reservers_of(leaves):
                cancel_reservation(state, other)
            if victims:
                for held in idle_holds_of(leaves):
                    delete_group(state, held)
                created = new_group(pod.spec, GroupState.PREEMPTING, found.physical, found.virtual)
                created.preempting[pod.uid] = pod
                reserve(state, created)
        if victims:
            return PodPreempting(victims)
        return record_place(found.physical, found.virtual, pod.spec.leaf_cell_number, 0)

    def add_allocated(self, pod: CellPod, bind_info: BindInfo) -> None:
        """A pod was given its place, now or before a restart. Raises `CellsUserError`."""
        state = self.state
        size = pod.spec.leaf_cell_number
        position = recorded_position(bind_info, size)
        if position is None:
            raise CellsUserError(f"pod {pod.key}: its record does not contain its own place; delete the pod")
        group = state.groups.get(pod.spec.group.name)
        if group is not None and group.state is GroupState.PREEMPTING:
            if any(leaf.state is CellState.RESERVING for leaf, _ in group.leaves()):
                raise CellsUserError(
                    f"pod {pod.key}: victims of its group {group.name!r} still run; wait until they are gone"
                )
            use_reservation(group)
        if group is None:
            group = restore_group(state, pod, bind_info)
        places = group.pods.get(size, [])
        if position >= len(places):
            return
        places[position] = AllocatedPod(pod, bind_info)
        group.preempting.pop(pod.uid, None)

    def delete_allocated(self, pod: CellPod) -> None:
        """An allocated pod is gone. Its group is deleted with its last pod, unless a hold keeps it."""
        group = self.state.groups.get(pod.spec.group.name)
        if group is None:
            return
        for places in group.pods.values():
            for position, each in enumerate(places):
                if each is not None and each.pod.uid == pod.uid:
                    places[position] = None
        if group.state is not GroupState.PREEMPTING and not group.holder and not any(group.allocated()):
            delete_group(self.state, group)

    def delete_unallocated(self, pod: CellPod) -> None:
        """A pod that waits is gone. A preemption is cancelled with its last pod."""
        group = self.state.groups.get(pod.spec.group.name)
        if group is None or group.state is not GroupState.PREEMPTING:
            return
        group.preempting.pop(pod.uid, None)
        if not group.preempting:
            cancel_reservation(self.state, group)

    def devices_of(self, pod: CellPod) -> tuple[int, ...]:
        """The indices of a running pod's devices; none if the configuration no longer has all of them."""
        return tuple(leaf.index for leaf in place_of(self.state, pod))

    def record_of(self, pod: CellPod) -> BindInfo | None:
        """The record of a running pod with the places that its group has now; None if it has none."""
        return record_of(self.state, pod)

    def move_allocated(self, moves: Sequence[PodMove]) -> dict[str, BindInfo]:
        """Running pods have other devices of their nodes: all are moved, or none.

        Returns the new records of all pods of their groups by UID. Raises `CellsUserError`.
        """
        return move_pods(self.state, moves)

    def vacate(self, node: str, indices: Collection[int]) -> None:
        """Take devices from places of groups that no pod has, since something runs on them."""
        vacate(self.state, node, indices)

    def hold(self, pod: CellPod, nodes: Collection[str]) -> Decision:
        """Give a group its cells before it has pods; `pod` stands for the holder. Raises `CellsUserError`."""
        return hold_group(self.state, pod, lambda phase: self.schedule(pod, nodes, phase))

    def restore_hold(self, pod: CellPod, bind_info: BindInfo | None, nodes: Collection[str]) -> None:
        """`hold` gave a group these cells before a restart; None: it had to preempt. Raises `CellsUserError`."""
        restore_hold(self.state, pod, bind_info, lambda phase: self.schedule(pod, nodes, phase))

    def end_hold(self, pod: CellPod) -> None:
        """The holder does not need its hold any more; pods that the group has keep their cells."""
        end_hold(self.state, pod)

    def hold_problem(self, pod: CellPod) -> str:
        """Why a hold is worth nothing any more, empty if it holds."""
        return hold_problem(self.state, pod)

    def never_fits(self, spec: PodSchedulingSpec) -> str:
        """Why a gang cannot fit even if nothing else runs, empty if it may. Raises `CellsUserError`."""
        return never_fits(self.state, spec)

    def groups(self) -> tuple[GroupStatus, ...]:
        """All groups, by name."""
        return tuple(group_status(self.state.groups[name]) for name in sorted(self.state.groups))

    def group(self, name: str) -> GroupStatus:
        """One group. Raises `CellsUserError`."""
        group = self.state.groups.get(name)
        if group is None:
            raise CellsUserError(f"affinity group {name!r} does not exist: it is neither allocated nor preempting")
        return group_status(group)

    def physical_cluster(self) -> tuple[CellStatus, ...]:
        """All physical cells."""
        return physical_status(self.state)

    def virtual_clusters(self) -> dict[str, tuple[CellStatus, ...]]:
        """The cells of each virtual cluster."""
        return {name: cluster_status(self.state, name) for name in cluster_names(self.state)}

    def virtual_cluster(self, name: str) -> tuple[CellStatus, ...]:
        """The cells of one virtual cluster. Raises `CellsUserError`."""
        if name not in cluster_names(self.state):
            known = names_of(self.state.clusters)
            raise CellsUserError(f"virtual cluster {name!r} does not exist; the configuration has {known}")
        return cluster_status(self.state, name)

    def _join(self, pod: CellPod, group: AffinityGroup) -> Decision:
        """The place of a further pod of an allocated group."""
        size = pod.spec.leaf_cell_number
        position = group.free_slot(size)
        if position is None:
            raise CellsUserError(
                f"pod {pod.key}: group {group.name!r} has no place left for a pod with {size} leaf cells; it has"
                f" {', '.join(f'{number} of {each}' for each, number in group.sizes.items())}"
            )
        if any(leaf is None for leaf in group.physical[size][position]):
            recorded = recorded_place(group, size, position)
            if recorded is None:
                raise CellsUserError(
                    f"pod {pod.key}: its place in the group {group.name!r} is on devices that the configuration no"
                    " longer has; delete the group's pods"
                )
            return recorded
        return record_place(group.physical, group.virtual, size, position)

    def _continue_preemption(
        self, pod: CellPod, group: AffinityGroup, suggested: AbstractSet[str], phase: Phase
    ) -> Decision | None:
        """The decision for a group that has reserved cells; None if its preemption was cancelled."""
        leaves = [leaf for leaf, _ in group.leaves()]
        if phase is Phase.PREEMPTING and any(not leaf.healthy or leaf.nodes[0] not in suggested for leaf in leaves):
            cancel_reservation(self.state, group)
            return None
        if group.free_slot(pod.spec.leaf_cell_number) is None:
            raise CellsUserError(
                f"pod {pod.key}: group {group.name!r} has no pods with {pod.spec.leaf_cell_number} leaf cells"
            )
        group.preempting[pod.uid] = pod
        victims = victims_of(leaves)
        if victims:
            return PodPreempting(victims)
        return record_place(group.physical, group.virtual, pod.spec.leaf_cell_number, 0)
