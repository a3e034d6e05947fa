"""Who uses which cell: the pods' records laid over a configuration. Pure.

A pod whose GPUs lie in a larger cell than they need has a broken island.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ostler.cells.discovery import CellNode
from ostler.cells.source import ScheduledPod
from scheduling.cells.configuration import CellsConfiguration, PhysicalCellSpec

OPPORTUNISTIC = -1


@dataclass(frozen=True, slots=True)
class CellUser:
    """A group with GPUs; pods of one group are one user."""

    group: str
    virtual_cluster: str
    priority: int

    def __str__(self) -> str:
        kind = "opportunistic" if self.priority == OPPORTUNISTIC else f"priority {self.priority}"
        return f"{self.group} ({self.virtual_cluster}, {kind})"


@dataclass(frozen=True, slots=True)
class UsedLeaf:
    """A GPU: its number, who uses it, and why it is bad."""

    index: int
    user: CellUser | None = None
    bad: str = ""


@dataclass(frozen=True, slots=True)
class UsedCell:
    """A cell with its children or, at the bottom, its GPU; ``owners``: virtual clusters with users below."""

    cell_type: str
    address: str
    is_node: bool
    children: tuple[UsedCell, ...]
    leaf: UsedLeaf | None = None
    pinned: str = ""

    def leaves(self) -> Iterator[UsedLeaf]:
        """Its GPUs in the order of the configuration."""
        if self.leaf is not None:
            yield self.leaf
        for child in self.children:
            yield from child.leaves()

    @property
    def name(self) -> str:
        """The last element of the address: of a node-level cell the node."""
        return self.address.rpartition("/")[2]

    @property
    def free(self) -> int:
        """How many GPUs can be given."""
        return sum(leaf.user is None and not leaf.bad for leaf in self.leaves())


@dataclass(frozen=True, slots=True)
class BrokenIsland:
    """A pod whose GPUs lie in a cell of ``cell_size`` GPUs, although ``needed`` would hold them."""

    pod: str
    node: str
    indices: tuple[int, ...]
    cell_size: int
    needed: int

    def __str__(self) -> str:
        numbers = ",".join(map(str, self.indices))
        return (
            f"pod {self.pod} has GPUs {numbers} of node {self.node} in a cell of {self.cell_size}; a cell of"
            f" {self.needed} would hold them"
        )


@dataclass(frozen=True, slots=True)
class PlacedCells:
    """The physical cells with their users, broken islands, and pods whose GPUs no cell has."""

    tops: tuple[UsedCell, ...]
    broken: tuple[BrokenIsland, ...]
    unknown: tuple[str, ...]


def placed_cells(
    configuration: CellsConfiguration, pods: Iterable[ScheduledPod] = (), nodes: Iterable[CellNode] = ()
) -> PlacedCells:
    """The cells; ``nodes``: for the health of their GPUs."""
    bound = [each for each in pods if each.bind_info is not None]
    users: dict[tuple[str, int], CellUser] = {}
    for each in bound:
        spec = each.pod.spec
        for index in each.bind_info.leaf_cell_isolation if each.bind_info is not None else ():
            users[_node(each), index] = CellUser(spec.group.name, spec.virtual_cluster, spec.priority)
    bad = {(node.name, device.index): device.bad for node in nodes for device in node.devices if device.bad}
    known: set[tuple[str, int]] = set()

    def built(cell: PhysicalCellSpec, node: str) -> UsedCell:
        kind = configuration.cell_types.get(cell.cell_type)
        is_node = kind is not None and kind.is_node_level
        name = cell.address.rpartition("/")[2]
        if kind is None:
            place = node, int(name)
            known.add(place)
            return UsedCell(
                cell.cell_type, cell.address, False, (), UsedLeaf(place[1], users.get(place), bad.get(place, ""))
            )
        children = tuple(built(child, name if is_node else node) for child in cell.children)
        return UsedCell(cell.cell_type, cell.address, is_node, children, None, cell.pinned_id)

    tops = tuple(built(top, "") for top in configuration.physical_cells)
    unknown = [
        f"pod {each.pod.key} has GPU {index} of node {_node(each)}, which no cell has"
        for each in bound
        for index in (each.bind_info.leaf_cell_isolation if each.bind_info is not None else ())
        if (_node(each), index) not in known
    ]
    return PlacedCells(tops, tuple(_broken(tops, bound)), tuple(unknown))


def _node(pod: ScheduledPod) -> str:
    return "" if pod.bind_info is None else pod.bind_info.node


def _broken(tops: Iterable[UsedCell], pods: Iterable[ScheduledPod]) -> Iterator[BrokenIsland]:
    by_node: dict[str, list[UsedCell]] = {}
    for top in tops:
        for node in nodes_of(top):
            by_node.setdefault(node.name, []).append(node)
    for each in pods:
        info = each.bind_info
        indices = frozenset() if info is None else frozenset(info.leaf_cell_isolation)
        for node in by_node.get(_node(each), ()):
            if indices and indices <= {leaf.index for leaf in node.leaves()}:
                lowest, smallest = smallest_cells(node, indices)
                if lowest > smallest:
                    yield BrokenIsland(each.pod.key, node.name, tuple(sorted(indices)), lowest, smallest)


def nodes_of(cell: UsedCell) -> Iterator[UsedCell]:
    """The node-level cells in a cell."""
    if cell.is_node:
        yield cell
    else:
        for child in cell.children:
            yield from nodes_of(child)


def smallest_cells(node: UsedCell, indices: frozenset[int]) -> tuple[int, int]:
    """The size of the smallest cell with all of these, and of the smallest that has as many."""
    lowest = smallest = len(list(node.leaves()))
    cells = [node]
    while cells:
        cell = cells.pop()
        own = {leaf.index for leaf in cell.leaves()}
        if len(own) >= len(indices):
            smallest = min(smallest, len(own))
            lowest = min(lowest, len(own)) if indices <= own else lowest
            cells += cell.children
    return lowest, smallest


def users_of(tops: Iterable[UsedCell]) -> Mapping[CellUser, int]:
    """All users in the order of their first GPU, and how many GPUs each has."""
    found: dict[CellUser, int] = {}
    for top in tops:
        for leaf in top.leaves():
            if leaf.user is not None:
                found[leaf.user] = found.get(leaf.user, 0) + 1
    return found
