"""Finds a place for a new gang: inside its virtual cluster and then on physical cells, or on any free devices.

Nothing is taken. Only lazy preemption changes the state, because the search needs the cells that it frees; it is
reverted if the gang finds no place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from scheduling.cells.decision import CellsUserError
from scheduling.cells.groups import PhysicalPlacement, VirtualPlacement
from scheduling.cells.mapping import Mapper
from scheduling.cells.placing import Gang, Unplaced
from scheduling.cells.pod import PodSchedulingSpec
from scheduling.cells.preemption import preempt_users_lazily, revert_lazy_preemption
from scheduling.cells.state import Chain, ClusterState, VirtualTree
from scheduling.cells.tree import LOWEST_GUARANTEED, PhysicalCell


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A placement of a whole gang. `virtual` is None if it is opportunistic."""

    physical: PhysicalPlacement
    virtual: VirtualPlacement | None

    def leaves(self) -> Iterator[PhysicalCell]:
        """The devices."""
        for pods in self.physical.values():
            for leaves in pods:
                yield from (leaf for leaf in leaves if leaf is not None)


def place_gang(state: ClusterState, spec: PodSchedulingSpec, suggested: AbstractSet[str]) -> FoundPlace | Unplaced:
    """Place a new group in the first chain that has room for it. Raises `CellsUserError`."""
    cluster = state.clusters.get(spec.virtual_cluster)
    if cluster is None:
        known = names_of(state.clusters)
        raise CellsUserError(f"virtual cluster {spec.virtual_cluster!r} does not exist; the configuration has {known}")
    sizes = tuple(each.leaf_cell_number for each in spec.group.members for _ in range(each.pod_number))
    gang = Gang(sizes, spec.priority, None if spec.ignore_suggested_nodes else suggested)
    is_guaranteed = spec.priority >= LOWEST_GUARANTEED
    if spec.pinned_cell_id:
        tree = cluster.pinned.get(spec.pinned_cell_id)
        if tree is None:
            known = names_of(cluster.pinned)
            raise CellsUserError(
                f"virtual cluster {cluster.name!r} has no pinned cell {spec.pinned_cell_id!r}; it has {known}"
            )
        if not is_guaranteed:
            raise CellsUserError(
                f"an opportunistic pod cannot use the pinned cell {spec.pinned_cell_id!r}; omit pinnedCellId"
            )
        return _place_guaranteed(state, spec, gang, tree)
    result: FoundPlace | Unplaced = Unplaced(f"virtual cluster {cluster.name!r} owns no cells")
    for chain in candidate_chains(state, spec):
        if is_guaranteed:
            result = _place_guaranteed(state, spec, gang, cluster.trees[chain.name])
        else:
            result = _place_opportunistic(gang, chain)
        if isinstance(result, FoundPlace):
            break
    return result


def names_of(names: Collection[str]) -> str:
    """Names as messages list them."""
    return ", ".join(sorted(names)) or "none"


def candidate_chains(state: ClusterState, spec: PodSchedulingSpec) -> list[Chain]:
    """The chains that may hold the gang, ascending by leaf type and name. Raises `CellsUserError`."""
    kind = spec.leaf_cell_type
    by_type = state.chains_by_leaf_type
    if kind and kind not in by_type:
        raise CellsUserError(f"no cell has the leaf type {kind!r}; the cluster has {names_of(by_type)}")
    chains = [chain for each in ([kind] if kind else sorted(by_type)) for chain in by_type[each]]
    if spec.priority < LOWEST_GUARANTEED:
        return chains
    trees = state.clusters[spec.virtual_cluster].trees
    owned = [chain for chain in chains if chain.name in trees]
    if kind and not owned:
        known = names_of({state.chains[each].leaf_type for each in trees})
        raise CellsUserError(
            f"virtual cluster {spec.virtual_cluster!r} owns no cells of the leaf type {kind!r}; it owns {known}"
        )
    return owned


def _place_guaranteed(
    state: ClusterState, spec: PodSchedulingSpec, gang: Gang, tree: VirtualTree
) -> FoundPlace | Unplaced:
    """Place a gang in its virtual cluster, and map that to physical cells."""
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
    return FoundPlace(physical, virtual)


def _place_opportunistic(gang: Gang, chain: Chain) -> FoundPlace | Unplaced:
    placed = chain.opportunistic.place(gang)
    if isinstance(placed, Unplaced):
        return Unplaced(f"{placed.reason} in the physical cluster", placed.node)
    physical: PhysicalPlacement = {}
    for pod in placed:
        physical.setdefault(len(pod), []).append(list(pod))
    return FoundPlace(physical, None)
