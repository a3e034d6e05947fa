"""The cell scheduler: decides where gangs go, and keeps account of what was decided.

Calls are never concurrent. A refused call raises `CellsUserError` before anything changes. Deciding changes nothing either,
with two exceptions that HiveD has as well: in the preempting phase a group reserves its cells, and a group that allows it is
lazily preempted as soon as a stronger one wants its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from scheduling.cells.building import build
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError, Decision, Phase, Placed, Preempting, Waiting
from scheduling.cells.groups import (
    AffinityGroup,
    AllocatedPod,
    GroupState,
    PhysicalPlacement,
    VirtualPlacement,
    new_group,
)
from scheduling.cells.health import set_bad_node, set_healthy_node
from scheduling.cells.leaves import release_leaf
from scheduling.cells.mapping import Mapper
from scheduling.cells.pod import BindInfo, CellPod, GroupMemberPlacement, PodPlacement, PodSchedulingSpec
from scheduling.cells.placing import Gang, Unplaced, lowest_common
from scheduling.cells.preemption import (
    cancel_reservation,
    preempt_users_lazily,
    reserve,
    reservers_of,
    revert_lazy_preemption,
    use_reservation,
    victims_of,
)
from scheduling.cells.recovery import recorded_position, restore_group
from scheduling.cells.status import CellStatus, GroupStatus, cluster_status, group_status, physical_status
from scheduling.cells.state import Chain, ClusterState, VirtualTree
from scheduling.cells.tree import LOWEST_GUARANTEED, CellState, PhysicalCell, VirtualCell


@dataclass(frozen=True, slots=True)
class _Found:
    """A placement of a whole gang."""

    physical: PhysicalPlacement
    virtual: VirtualPlacement | None


class CellScheduler:
    """One cluster of cells."""

    def __init__(self, configuration: CellsConfiguration) -> None:
        """All configured nodes are bad until `set_node` tells otherwise."""
        self.state: ClusterState = build(configuration)
        for chain in self.state.chains.values():
            for cell in chain.full[chain.top]:
                for node in cell.nodes:
                    set_bad_node(self.state, node)

    def set_node(self, name: str, *, healthy: bool) -> None:
        """A node exists, and is healthy or not."""
        if healthy:
            set_healthy_node(self.state, name)
        else:
            set_bad_node(self.state, name)

    def delete_node(self, name: str) -> None:
        """A node is gone; its cells are bad."""
        set_bad_node(self.state, name)

    def schedule(self, pod: CellPod, nodes: Collection[str], phase: Phase) -> Decision:
        """Decide where a pod goes. `nodes` are the suggested ones. Raises `CellsUserError`."""
        state = self.state
        suggested = frozenset(nodes)
        group = state.groups.get(pod.spec.group.name)
        if group is not None and group.state is GroupState.PREEMPTING:
            decision = self._continue_preemption(pod, group, suggested, phase)
            if decision is not None:
                return decision
        elif group is not None:
            return self._join(pod, group)
        found = self._place(pod.spec, suggested)
        if isinstance(found, Unplaced):
            return Waiting(found.reason, {found.node: found.reason} if found.node else {})
        leaves = list(_leaves(found.physical))
        victims = victims_of(leaves)
        if phase is Phase.PREEMPTING:
            for other in reservers_of(leaves):
                cancel_reservation(state, other)
            if victims:
                created = new_group(pod.spec, GroupState.PREEMPTING, found.physical, found.virtual)
                created.preempting[pod.uid] = pod
                reserve(state, created)
        if victims:
            return Preempting(victims)
        return _placed(found.physical, found.virtual, pod.spec, 0)

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
                raise CellsUserError(f"pod {pod.key}: victims of its group {group.name!r} still run; wait until they are gone")
            use_reservation(group)
        if group is None:
            group = self._allocate(pod, bind_info)
        places = group.pods.get(size, [])
        if position >= len(places):
            return
        places[position] = AllocatedPod(pod, bind_info)
        group.preempting.pop(pod.uid, None)

    def delete_allocated(self, pod: CellPod) -> None:
        """An allocated pod is gone. Its group is deleted with its last pod."""
        group = self.state.groups.get(pod.spec.group.name)
        if group is None:
            return
        for places in group.pods.values():
            for position, each in enumerate(places):
                if each is not None and each.pod.uid == pod.uid:
                    places[position] = None
        if group.state is not GroupState.PREEMPTING and not any(group.allocated()):
            self._delete(group)

    def delete_unallocated(self, pod: CellPod) -> None:
        """A pod that waits is gone. A preemption is cancelled with its last pod."""
        group = self.state.groups.get(pod.spec.group.name)
        if group is None or group.state is not GroupState.PREEMPTING:
            return
        group.preempting.pop(pod.uid, None)
        if not group.preempting:
            cancel_reservation(self.state, group)

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
        return {name: cluster_status(self.state, each) for name, each in self.state.clusters.items()}

    def virtual_cluster(self, name: str) -> tuple[CellStatus, ...]:
        """The cells of one virtual cluster. Raises `CellsUserError`."""
        cluster = self.state.clusters.get(name)
        if cluster is None:
            raise CellsUserError(f"virtual cluster {name!r} does not exist; the configuration has {_names(self.state.clusters)}")
        return cluster_status(self.state, cluster)

    # ---- deciding

    def _join(self, pod: CellPod, group: AffinityGroup) -> Decision:
        """The place of a further pod of an allocated group."""
        size = pod.spec.leaf_cell_number
        position = group.free_slot(size)
        if position is None:
            raise CellsUserError(
                f"pod {pod.key}: group {group.name!r} has no place left for a pod with {size} leaf cells; it has"
                f" {', '.join(f'{number} of {each}' for each, number in group.sizes.items())}"
            )
        recorded = None
        if any(leaf is None for leaf in group.physical[size][position]):
            recorded = _recorded_place(group, size, position)
        return recorded or _placed(group.physical, group.virtual, pod.spec, position)

    def _continue_preemption(
        self, pod: CellPod, group: AffinityGroup, suggested: frozenset[str], phase: Phase
    ) -> Decision | None:
        """The decision for a group that has reserved cells; None if its preemption was cancelled."""
        leaves = [leaf for leaf, _ in group.leaves()]
        if phase is Phase.PREEMPTING and any(
            not leaf.healthy or leaf.nodes[0] not in suggested for leaf in leaves
        ):
            cancel_reservation(self.state, group)
            return None
        if group.free_slot(pod.spec.leaf_cell_number) is None:
            raise CellsUserError(f"pod {pod.key}: group {group.name!r} has no pods with {pod.spec.leaf_cell_number} leaf cells")
        group.preempting[pod.uid] = pod
        victims = victims_of(leaves)
        if victims:
            return Preempting(victims)
        return _placed(group.physical, group.virtual, pod.spec, 0)

    def _place(self, spec: PodSchedulingSpec, suggested: frozenset[str]) -> _Found | Unplaced:
        """Place a new group in the first chain that has room for it. Raises `CellsUserError`."""
        state = self.state
        cluster = state.clusters.get(spec.virtual_cluster)
        is_guaranteed = spec.priority >= LOWEST_GUARANTEED
        if cluster is None:
            raise CellsUserError(f"virtual cluster {spec.virtual_cluster!r} does not exist; the configuration has {_names(state.clusters)}")
        sizes = tuple(each.leaf_cell_number for each in spec.group.members for _ in range(each.pod_number))
        gang = Gang(sizes, spec.priority, None if spec.ignore_suggested_nodes else suggested)
        if spec.pinned_cell_id:
            tree = cluster.pinned.get(spec.pinned_cell_id)
            if tree is None:
                raise CellsUserError(
                    f"virtual cluster {cluster.name!r} has no pinned cell {spec.pinned_cell_id!r}; it has {_names(cluster.pinned)}"
                )
            if not is_guaranteed:
                raise CellsUserError(f"an opportunistic pod cannot ask for the pinned cell {spec.pinned_cell_id!r}; omit pinnedCellId")
            return self._place_guaranteed(spec, gang, tree)
        kind = spec.leaf_cell_type
        if kind and kind not in state.chains_by_leaf_type:
            raise CellsUserError(f"no cell has the leaf type {kind!r}; the cluster has {_names(state.chains_by_leaf_type)}")
        chains = [
            chain
            for each in ([kind] if kind else sorted(state.chains_by_leaf_type))
            for chain in state.chains_by_leaf_type[each]
            if not is_guaranteed or chain.name in cluster.trees
        ]
        if kind and not chains:
            owned = _names({state.chains[each].leaf_type for each in cluster.trees})
            raise CellsUserError(f"virtual cluster {cluster.name!r} owns no cells of leaf type {kind!r}; it owns {owned}")
        result: _Found | Unplaced = Unplaced(f"virtual cluster {cluster.name!r} owns no cells")
        for chain in chains:
            if is_guaranteed:
                result = self._place_guaranteed(spec, gang, cluster.trees[chain.name])
            else:
                result = _place_opportunistic(gang, chain)
            if isinstance(result, _Found):
                break
        return result

    def _place_guaranteed(self, spec: PodSchedulingSpec, gang: Gang, tree: VirtualTree) -> _Found | Unplaced:
        """Place a gang in its virtual cluster, and map that to physical cells."""
        state = self.state
        placed = tree.view.place(gang)
        if isinstance(placed, Unplaced):
            return Unplaced(f"{placed.reason} in virtual cluster {spec.virtual_cluster!r}", placed.node)
        leaves = [leaf for pod in placed for leaf in pod]
        preempted = preempt_users_lazily(state, leaves, spec.group.name)
        mapper = Mapper(state.chains[tree.chain], gang.suggested)
        if not mapper.map(leaves):
            for group, before in preempted:
                revert_lazy_preemption(state, group, before)
            return Unplaced(
                f"virtual cluster {spec.virtual_cluster!r} has room, but only on cells that are bad or not suggested"
            )
        physical: PhysicalPlacement = {}
        virtual: VirtualPlacement = {}
        for pod in placed:
            physical.setdefault(len(pod), []).append([mapper.found[leaf] for leaf in pod])
            virtual.setdefault(len(pod), []).append(list(pod))
        return _Found(physical, virtual)

    # ---- keeping account

    def _allocate(self, pod: CellPod, info: BindInfo) -> AffinityGroup:
        """Allocate a new group by its record, after cancelling weaker reservations of the same cells."""
        return restore_group(self.state, pod, info)

    def _delete(self, group: AffinityGroup) -> None:
        """Release the cells of a group that has no pods left."""
        for leaf, virtual in group.leaves():
            leaf.used_by = None
            if leaf.state is CellState.USED:
                release_leaf(self.state, leaf, virtual, group)
                leaf.state = CellState.FREE
            else:
                leaf.state = CellState.RESERVED
        del self.state.groups[group.name]


def _place_opportunistic(gang: Gang, chain: Chain) -> _Found | Unplaced:
    placed = chain.opportunistic.place(gang)
    if isinstance(placed, Unplaced):
        return Unplaced(f"{placed.reason} in the physical cluster", placed.node)
    physical: PhysicalPlacement = {}
    for pod in placed:
        physical.setdefault(len(pod), []).append(list(pod))
    return _Found(physical, None)


def _leaves(placement: PhysicalPlacement) -> Iterator[PhysicalCell]:
    for pods in placement.values():
        for leaves in pods:
            for leaf in leaves:
                if leaf is not None:
                    yield leaf


def _placed(
    physical: PhysicalPlacement, virtual: VirtualPlacement | None, spec: PodSchedulingSpec, position: int
) -> Placed:
    """The record of one pod of a placed group."""
    members: list[GroupMemberPlacement] = []
    for size in sorted(physical):
        placements: list[PodPlacement] = []
        for index, leaves in enumerate(physical[size]):
            kinds = ["" if virtual is None else _preassigned(virtual[size][index][i]) for i in range(size)]
            placements.append(
                PodPlacement(
                    node=next((leaf.nodes[0] for leaf in leaves if leaf is not None), ""),
                    indices=tuple(-1 if leaf is None else leaf.index for leaf in leaves),
                    preassigned_types=tuple(kinds),
                )
            )
        members.append(GroupMemberPlacement(tuple(placements)))
    own = [leaf for leaf in physical[spec.leaf_cell_number][position] if leaf is not None]
    common = lowest_common(own)
    info = BindInfo(
        node=own[0].nodes[0],
        leaf_cell_isolation=tuple(leaf.index for leaf in own),
        cell_chain=own[0].chain,
        members=tuple(members),
    )
    return Placed(info, "" if common is None else common.kind)


def _preassigned(virtual: VirtualCell | None) -> str:
    return "" if virtual is None else virtual.root.kind


def _recorded_place(group: AffinityGroup, size: int, position: int) -> Placed | None:
    """A place that the configuration no longer has, by the record of another pod of the group."""
    for each in group.allocated():
        info = each.bind_info
        for member in info.members:
            placements = member.pod_placements
            if placements and len(placements[0].indices) == size and position < len(placements):
                own = placements[position]
                return Placed(BindInfo(own.node, own.indices, info.cell_chain, info.members))
    return None


def _names(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
