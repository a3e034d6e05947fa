"""Builds the state of a configuration: trees, lists, counters. All nodes are healthy and all cells free."""

from __future__ import annotations

from scheduling.cells.configuration import CellsConfiguration, PhysicalCellSpec, VirtualClusterSpec
from scheduling.cells.placing import ClusterView
from scheduling.cells.preassigned import take_preassigned
from scheduling.cells.state import Chain, ClusterState, VirtualCluster, VirtualTree
from scheduling.cells.tree import CellList, PhysicalCell, VirtualCell, bind_one


def build(configuration: CellsConfiguration) -> ClusterState:
    """The state before any node is known."""
    physical = _PhysicalBuilder(configuration)
    chains = {name: physical.chain(name) for name in sorted({each.cell_type for each in configuration.physical_cells})}
    state = ClusterState(
        configuration=configuration,
        chains=chains,
        clusters={},
        leaves_by_node=physical.leaves_by_node,
        leaf_by_place=physical.leaf_by_place,
        chains_by_leaf_type={},
    )
    for chain in chains.values():
        state.chains_by_leaf_type.setdefault(chain.leaf_type, []).append(chain)
    for name, spec in configuration.virtual_clusters.items():
        state.clusters[name] = _build_cluster(name, spec, state, physical)
    for chain in chains.values():
        for numbers in chain.vc_free.values():
            for level, number in enumerate(numbers):
                chain.all_vc_free[level] += number
    for cluster in state.clusters.values():
        for pinned_id, tree in cluster.pinned.items():
            root = next(each for cells in tree.preassigned for each in cells)
            bind_one(physical.pinned[pinned_id], root)
            take_preassigned(state, physical.pinned[pinned_id], cluster.name)
    return state


class _PhysicalBuilder:
    """Builds the trees of all chains, and the indexes over their leaves."""

    def __init__(self, configuration: CellsConfiguration) -> None:
        self._configuration = configuration
        self.leaves_by_node: dict[str, list[PhysicalCell]] = {}
        self.leaf_by_place: dict[tuple[str, str, int], PhysicalCell] = {}
        self.pinned: dict[str, PhysicalCell] = {}

    def chain(self, name: str) -> Chain:
        """All cells of one top type."""
        configuration = self._configuration
        types = configuration.ladder(name)
        node_level = configuration.node_level(name)
        full: list[list[PhysicalCell]] = [[] for _ in range(len(types) + 1)]
        for spec in configuration.physical_cells:
            if spec.cell_type == name:
                self._add(spec, name, len(types), node_level, full)
        return Chain(
            name=name,
            types=types,
            full=full,
            free=[CellList() for _ in types] + [CellList(full[-1])],
            bad_free=[CellList() for _ in full],
            total_left=[len(each) for each in full],
            all_vc_free=[0 for _ in full],
            opportunistic=ClusterView(full, node_level, pack_across_priorities=False),
        )

    def _add(
        self, spec: PhysicalCellSpec, chain: str, level: int, node_level: int, full: list[list[PhysicalCell]]
    ) -> PhysicalCell:
        children = tuple(self._add(each, chain, level - 1, node_level, full) for each in spec.children)
        cell = PhysicalCell(chain, spec.cell_type, level, spec.address, sum(each.leaf_count for each in children) or 1)
        cell.children = children
        cell.node_level = node_level
        cell.pinned_id = spec.pinned_id
        for child in children:
            child.parent = cell
        element = spec.address.rpartition("/")[2]
        if level == node_level:
            self._name_node(cell, element, chain)
        elif level > node_level:
            cell.nodes = tuple(node for child in children for node in child.nodes)
        if spec.pinned_id:
            self.pinned[spec.pinned_id] = cell
        full[level].append(cell)
        return cell

    def _name_node(self, cell: PhysicalCell, node: str, chain: str) -> None:
        """Tell a node-level cell and all cells below which node they are on."""
        cell.nodes = (node,)
        if not cell.children:
            cell.index = int(cell.address.rpartition("/")[2])
            self.leaves_by_node.setdefault(node, []).append(cell)
            self.leaf_by_place[chain, node, cell.index] = cell
        for child in cell.children:
            self._name_node(child, node, chain)


def _build_cluster(
    name: str, spec: VirtualClusterSpec, state: ClusterState, physical: _PhysicalBuilder
) -> VirtualCluster:
    cluster = VirtualCluster(name, [], {}, {})
    by_chain: dict[str, list[list[VirtualCell]]] = {}
    owned: dict[str, list[list[VirtualCell]]] = {}
    for cells in spec.cells:
        chain = state.chains[cells.chain]
        for _ in range(cells.number):
            full = by_chain.setdefault(chain.name, [[] for _ in range(chain.top + 1)])
            roots = owned.setdefault(chain.name, [[] for _ in range(chain.top + 1)])
            root = _virtual_tree(cluster, chain, chain.level_of(cells.preassigned_type), "", full)
            roots[root.level].append(root)
    for chain_name, full in by_chain.items():
        view = ClusterView(full, _node_level(state, chain_name), pack_across_priorities=True)
        cluster.trees[chain_name] = VirtualTree(chain_name, owned[chain_name], view)
    for pinned_id in spec.pinned:
        cell = physical.pinned[pinned_id]
        chain = state.chains[cell.chain]
        full = [[] for _ in range(chain.top + 1)]
        root = _virtual_tree(cluster, chain, cell.level, pinned_id, full)
        view = ClusterView(full, _node_level(state, chain.name), pack_across_priorities=True)
        preassigned: list[list[VirtualCell]] = [[] for _ in range(chain.top + 1)]
        preassigned[root.level].append(root)
        cluster.pinned[pinned_id] = VirtualTree(chain.name, preassigned, view)
    for root in cluster.roots:
        chain = state.chains[root.chain]
        numbers = chain.vc_free.setdefault(name, [0] * (chain.top + 1))
        numbers[root.level] += 1
        chain.doomed.setdefault(name, [CellList() for _ in range(chain.top + 1)])
    return cluster


def _node_level(state: ClusterState, chain: str) -> int:
    return state.configuration.node_level(chain)


def _virtual_tree(
    cluster: VirtualCluster, chain: Chain, level: int, pinned_id: str, full: list[list[VirtualCell]]
) -> VirtualCell:
    """A preassigned cell with everything below it. Addresses count on from level to level."""
    example = chain.full[level][0]
    address = f"{cluster.name}/{len(cluster.roots)}"
    root = _virtual_cell(cluster.name, example, address, 0, full)
    root.pinned_id = pinned_id
    _set_root(root, root)
    cluster.roots.append(root)
    return root


def _virtual_cell(
    cluster: str, example: PhysicalCell, address: str, position: int, full: list[list[VirtualCell]]
) -> VirtualCell:
    """A virtual cell of the shape of a physical one."""
    cell = VirtualCell(example.chain, example.kind, example.level, address, example.leaf_count)
    cell.cluster = cluster
    cell.node_level = example.node_level
    full[cell.level].append(cell)
    first = position * len(example.children)
    cell.children = tuple(
        _virtual_cell(cluster, child, f"{address}/{first + i}", first + i, full)
        for i, child in enumerate(example.children)
    )
    for child in cell.children:
        child.parent = cell
    return cell


def _set_root(cell: VirtualCell, root: VirtualCell) -> None:
    cell.root = root
    for child in cell.children:
        _set_root(child, root)
