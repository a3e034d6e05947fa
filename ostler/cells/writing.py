"""Writes the configuration of discovered cells: types by the shape of the nodes, cells by node and group of nodes.

Nodes of one product and one shape have one type. Above the nodes come NVLink domains that several nodes share, then
groups of nodes with the same value of a label. What people write, virtual clusters and pinned nodes, is kept from an
existing configuration. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ostler.cells.discovery import CellNode, DeviceCell, DiscoveredCells, slug
from scheduling.cells.configuration import CellsConfiguration, CellType, PhysicalCellSpec


@dataclass(frozen=True, slots=True)
class WrittenCell:
    """A cell of the configuration: its type, its own element of the address, and children where they must be given."""

    cell_type: str
    element: str
    children: tuple[WrittenCell, ...] = ()
    pinned: str = ""


@dataclass(slots=True)
class CellTypeNames:
    """Names of types by what they mean; two meanings never have one name."""

    types: dict[str, CellType] = field(default_factory=dict)
    _names: dict[tuple[object, ...], str] = field(default_factory=dict)

    def leaf(self, product: str) -> str:
        """The type of a single GPU."""
        return self._named(("leaf", product), slug(product))

    def of(self, child: str, number: int, wanted: str, *, is_node: bool = False) -> str:
        """The type of cells of that many children."""
        name = self._named((child, number, is_node), wanted)
        self.types.setdefault(name, CellType(name, child, number, is_node))
        return name

    def _named(self, meaning: tuple[object, ...], wanted: str) -> str:
        if meaning not in self._names:
            taken, name, number = set(self._names.values()), wanted, 2
            while name in taken:
                name, number = f"{wanted}-v{number}", number + 1
            self._names[meaning] = name
        return self._names[meaning]


@dataclass(frozen=True, slots=True)
class WrittenConfiguration:
    """The text of a configuration, and what people should know about it, one sentence each."""

    text: str
    notes: tuple[str, ...]


def write_configuration(
    found: DiscoveredCells, *, origin: str, labels: Sequence[str] = (), kept: CellsConfiguration | None = None
) -> WrittenConfiguration:
    """The configuration of these cells; ``labels``: of nodes, the innermost group first."""
    names = CellTypeNames()
    pins = _pins(kept) if kept is not None else {}
    tops = [_node_cell(node, names, pins) for node in found.nodes]
    tops = _grouped([(cell, node.clique) for cell, node in zip(tops, found.nodes, strict=True)], names)
    by_name = {node.name: node.labels for node in found.nodes}
    for label in labels:
        tops = _grouped([(cell, _common(cell, by_name, label)) for cell in tops], names)
    notes = list(found.notes)
    notes += [
        f"GPU {each.index} of node {node.name} ({each.name}) is bad: taint {each.bad}"
        for node in found.nodes
        for each in node.devices
        if each.bad
    ]
    used = {cell.pinned for top in tops for cell in _all(top)}
    notes += [
        f"the pinned cell {pin} is left out: it is not a whole node of the cluster; write pinnedCellId where it belongs"
        for pin in sorted(_every_pin(kept.physical_cells) - used if kept is not None else ())
    ]
    head = [f"# The physical cells are those of {origin}: {_count(found)}."]
    head += [f"# {note}." for note in notes]
    lines = [*head, *_physical(names, tops), *_virtual(tops, kept), *_extender(kept)]
    return WrittenConfiguration("\n".join(lines) + "\n", tuple(notes))


def _count(found: DiscoveredCells) -> str:
    nodes, devices = len({each.name for each in found.nodes}), sum(len(each.devices) for each in found.nodes)
    return f"{nodes} node{'' if nodes == 1 else 's'}, {devices} GPU{'' if devices == 1 else 's'}"


def _node_cell(node: CellNode, names: CellTypeNames, pins: Mapping[str, str]) -> WrittenCell:
    leaf = names.leaf(node.product)
    kinds, below = [leaf], 1
    for size in node.shape[1:-1]:
        kinds.append(names.of(kinds[-1], size // below, f"{leaf}-{size}"))
        below = size
    total = node.shape[-1]
    kind = names.of(kinds[-1], total // below, f"{leaf}-NODE-{total}", is_node=True)
    children = () if _is_counted(node.tree) else _children(node.tree, [*kinds], leaf)
    return WrittenCell(kind, node.name, children, pins.get(node.name, ""))


def _is_counted(tree: DeviceCell) -> bool:
    """Whether counting gives every leaf its number, so that no children have to be written."""

    def leaves(cell: DeviceCell) -> Iterable[int]:
        return (index for child in cell.children for index in leaves(child)) if cell.children else cell.indices

    return list(leaves(tree)) == list(range(len(tree.indices)))


def _children(cell: DeviceCell, kinds: Sequence[str], leaf: str) -> tuple[WrittenCell, ...]:
    """The cells below; ``kinds``: types from the leaf to the children of this cell."""
    if not cell.children:
        return (WrittenCell(leaf, str(cell.indices[0])),) if len(kinds) == 1 else ()
    return tuple(
        WrittenCell(
            kinds[-1],
            str(child.indices[0]) if not child.children else "",
            _children(child, kinds[:-1], leaf) if child.children else (),
        )
        for child in cell.children
    )


def _grouped(cells: Sequence[tuple[WrittenCell, str]], names: CellTypeNames) -> list[WrittenCell]:
    """Cells of one type and one group become one cell, at the place of the first; others stay."""
    groups: dict[tuple[str, str, int], list[WrittenCell]] = {}
    for number, (cell, group) in enumerate(cells):
        groups.setdefault((group, cell.cell_type, 0 if group else number), []).append(cell)
    found = []
    for (group, kind, _), members in groups.items():
        if len(members) == 1:
            found.append(members[0])
        else:
            name = names.of(kind, len(members), f"{len(members)}-{kind}")
            found.append(WrittenCell(name, slug(group), tuple(members)))
    return found


def _all(cell: WrittenCell) -> Iterable[WrittenCell]:
    yield cell
    for child in cell.children:
        yield from _all(child)


def _common(cell: WrittenCell, labels: Mapping[str, Mapping[str, str]], label: str) -> str:
    """The value of a label that all nodes of a cell have; empty if they differ."""
    values = {labels[each.element].get(label, "") for each in _all(cell) if each.element in labels}
    return values.pop() if len(values) == 1 else ""


def _pins(kept: CellsConfiguration) -> dict[str, str]:
    """Pinned ids by the node that they stand for."""
    found: dict[str, str] = {}

    def look(cell: PhysicalCellSpec) -> None:
        kind = kept.cell_types.get(cell.cell_type)
        if cell.pinned_id and kind is not None and kind.is_node_level:
            found[cell.address.rpartition("/")[2]] = cell.pinned_id
        for child in cell.children:
            look(child)

    for top in kept.physical_cells:
        look(top)
    return found


def _every_pin(cells: Iterable[PhysicalCellSpec]) -> set[str]:
    found = set()
    for cell in cells:
        found |= {cell.pinned_id} if cell.pinned_id else set()
        found |= _every_pin(cell.children)
    return found


def _physical(names: CellTypeNames, tops: Sequence[WrittenCell]) -> list[str]:
    lines = ["physicalCluster:", f"  cellTypes:{'' if names.types else ' {}'}"]
    for name, kind in names.types.items():
        lines += [f"    {_scalar(name)}:", f"      childCellType: {_scalar(kind.child_type)}"]
        lines += [f"      childCellNumber: {kind.child_number}"]
        lines += ["      isNodeLevel: true"] if kind.is_node_level else []
    lines.append(f"  physicalCells:{'' if tops else ' []'}")
    for top in tops:
        lines += _cell_lines(top, "  ")
    return lines


def _cell_lines(cell: WrittenCell, indent: str) -> list[str]:
    lines = [f"{indent}- cellType: {_scalar(cell.cell_type)}"]
    lines += [f"{indent}  cellAddress: {_scalar(cell.element)}"] if cell.element else []
    lines += [f"{indent}  pinnedCellId: {_scalar(cell.pinned)}"] if cell.pinned else []
    if cell.children:
        lines.append(f"{indent}  cellChildren:")
        for child in cell.children:
            lines += _cell_lines(child, f"{indent}  ")
    return lines


def _virtual(tops: Sequence[WrittenCell], kept: CellsConfiguration | None) -> list[str]:
    clusters: dict[str, tuple[list[tuple[str, int]], tuple[str, ...]]] = {}
    if kept is None:
        owned: dict[str, int] = {}
        for top in tops:
            owned[top.cell_type] = owned.get(top.cell_type, 0) + 1
        clusters["default"] = [*owned.items()], ()
    else:
        clusters = {
            name: ([(each.cell_type, each.number) for each in spec.cells], spec.pinned)
            for name, spec in kept.virtual_clusters.items()
        }
    lines = [f"virtualClusters:{'' if clusters else ' {}'}"]
    for name, (cells, pinned) in clusters.items():
        lines.append(f"  {_scalar(name)}:{'' if cells or pinned else ' {}'}")
        lines += ["    virtualCells:"] if cells else []
        for kind, number in cells:
            lines += [f"    - cellType: {_scalar(kind)}", f"      cellNumber: {number}"]
        lines += ["    pinnedCells:"] if pinned else []
        lines += [f"    - pinnedCellId: {_scalar(each)}" for each in pinned]
    return lines


def _extender(kept: CellsConfiguration | None) -> list[str]:
    if kept is None:
        return []
    own = kept.extender
    values: dict[str, str | int] = {
        "kubeApiServerAddress": own.kube_api_server_address,
        "kubeConfigFilePath": own.kube_config_file_path,
        "webServerAddress": own.web_server_address,
        "forcePodBindThreshold": own.force_pod_bind_threshold,
        "waitingPodSchedulingBlockMilliSec": own.waiting_pod_scheduling_block_ms,
    }
    return [f"{key}: {_scalar(value) if isinstance(value, str) else value}" for key, value in values.items() if value]


_PLAIN = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""Plain words that YAML takes for something else than a text."""


def _scalar(text: str) -> str:
    """A text in YAML, quoted as in JSON unless it can only be a text: names of nodes may look like numbers."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
