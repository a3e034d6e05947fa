"""The differences between a configuration of cells and the cluster, one sentence each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ostler.cells.discovery import CellNode, DiscoveredCells
from scheduling.cells.configuration import CellsConfiguration, PhysicalCellSpec


@dataclass(frozen=True, slots=True)
class ConfiguredNode:
    """A node-level cell: its node, its address, and the numbers of the GPUs of every cell below it, itself first."""

    name: str
    address: str
    cells: tuple[tuple[str, frozenset[int]], ...]

    @property
    def indices(self) -> frozenset[int]:
        """The numbers of all GPUs."""
        return self.cells[0][1]


def configured_nodes(configuration: CellsConfiguration) -> Iterator[ConfiguredNode]:
    """The node-level cells of a configuration, in its order."""

    def look(cell: PhysicalCellSpec) -> Iterator[ConfiguredNode]:
        kind = configuration.cell_types.get(cell.cell_type)
        if kind is not None and kind.is_node_level:
            yield ConfiguredNode(cell.address.rpartition("/")[2], cell.address, tuple(_cells(cell)))
        else:
            for child in cell.children:
                yield from look(child)

    for top in configuration.physical_cells:
        yield from look(top)


def _cells(cell: PhysicalCellSpec) -> Iterator[tuple[str, frozenset[int]]]:
    yield cell.address, frozenset(_leaves(cell))
    for child in cell.children:
        yield from _cells(child)


def _leaves(cell: PhysicalCellSpec) -> Iterator[int]:
    if not cell.children:
        yield int(cell.address.rpartition("/")[2])
    for child in cell.children:
        yield from _leaves(child)


def configured_by_name(configuration: CellsConfiguration) -> dict[str, list[ConfiguredNode]]:
    """The node-level cells by the name of their node, which may have cells of several chains."""
    found: dict[str, list[ConfiguredNode]] = {}
    for each in configured_nodes(configuration):
        found.setdefault(each.name, []).append(each)
    return found


def drift(configuration: CellsConfiguration, found: DiscoveredCells) -> list[str]:
    """The differences, by node: what the configuration has, what the cluster has, and what to do."""
    configured = configured_by_name(configuration)
    published: dict[str, list[CellNode]] = {}
    for node in found.nodes:
        published.setdefault(node.name, []).append(node)
    return [
        sentence
        for name in sorted(configured.keys() | published.keys())
        for sentence in node_drift(name, configured.get(name, ()), published.get(name, ()))
    ]


def node_drift(name: str, configured: Sequence[ConfiguredNode], published: Sequence[CellNode]) -> list[str]:
    """The differences of one node, which is configured or publishes GPUs."""
    if not published:
        return [f"node {name} is configured and publishes no GPUs; remove its cell, or look at the node's agent"]
    if not configured:
        count = sum(len(node.devices) for node in published)
        return [f"node {name} publishes {_gpus(count)} and is not configured; add its cell"]
    return list(_of_node(name, configured, published))


def _of_node(name: str, configured: Sequence[ConfiguredNode], published: Sequence[CellNode]) -> Iterator[str]:
    wanted = frozenset(index for each in configured for index in each.indices)
    there = frozenset(each.index for node in published for each in node.devices)
    if wanted - there:
        yield f"node {name} has no GPU {_some(wanted - there)}, which the configuration names; remove it"
    if there - wanted:
        yield f"node {name} publishes GPU {_some(there - wanted)}, which no cell has; add it"
    groups = [frozenset(cell.indices) for node in published for cell in node.tree.inner()]
    for each in configured:
        for address, indices in each.cells:
            if not 1 < len(indices) < len(each.indices) or not indices <= there:
                continue
            size = min((len(group) for group in groups if len(group) >= len(indices)), default=0)
            if not any(indices <= group for group in groups if len(group) == size):
                inside = sorted(sorted(group) for group in groups if len(group) == size and group & indices)
                parts = " and ".join(_some(group) for group in inside)
                yield (
                    f"cell {address} has GPU {_some(indices)} of node {name}, which are in different cells: {parts};"
                    " give it GPUs of one cell"
                )


def _some(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
