"""Reads `physicalCells`: completes generated children and addresses, and checks both.

A child's address element defaults to the position of its parent times the number of children plus its own, and starts
at 0 again below a node: so a leaf's default is the index of the device on its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduling.cells.configuration import CellType, PhysicalCellSpec
from scheduling.cells.yaml_nodes import line_of

if TYPE_CHECKING:
    import yaml

    from scheduling.cells.configuration_text import ConfigurationReader

_KEYS = ("cellType", "cellAddress", "pinnedCellId", "cellChildren")
MOST_CELLS = 1_000_000
"""Leaves of one top cell; more are a mistake in childCellNumber."""


@dataclass(frozen=True, slots=True)
class PinnedPlace:
    """Where a pinned cell is."""

    chain: str
    cell_type: str


@dataclass(frozen=True, slots=True)
class _Parent:
    """Where a cell is: the address above it and the node that it is part of, if any."""

    address: str
    on_node: str


class PhysicalReader:
    """Reads the physical cells of one file."""

    def __init__(self, reader: ConfigurationReader, types: Mapping[str, CellType]) -> None:
        self._reader = reader
        self._types = types
        self.cells: list[PhysicalCellSpec] = []
        self.chains: dict[str, tuple[str, ...]] = {}  # top type -> ladder of types, the leaf type first
        self.pinned: dict[str, PinnedPlace] = {}
        self._nodes: dict[tuple[str, str], int] = {}  # chain and node -> line
        self._devices: dict[tuple[str, int], int] = {}  # node and index -> line
        self._chain = ""

    def read(self, node: yaml.Node | None) -> None:
        """Read the list of top cells."""
        for position, each in enumerate(self._reader.items(node, "physicalCells")):
            keys = self._reader.mapping(each, "physicalCells", _KEYS)
            name = self._reader.text(keys.get("cellType"), "physicalCells.cellType")
            self._check_top(each, name)
            self._chain = name
            self.cells.append(self._cell(each, name, _Parent("", ""), position))

    def _check_top(self, node: yaml.Node, name: str) -> None:
        refuse = self._reader.refuse
        if not name:
            refuse(node, "a cell of physicalCells has no cellType", "name one of cellTypes", key="cellType")
        if name not in self._types:
            known = ", ".join(sorted(self._types)) or "none"
            refuse(
                node,
                f"physicalCells has the unknown cellType {name!r}",
                f"cellTypes has {known}",
                key="cellType",
                value=name,
            )
        if name in self.chains:
            return
        ladder = [name]
        leaves, nodes = 1, 0
        while (kind := self._types.get(ladder[-1])) is not None:
            leaves *= kind.child_number
            nodes += kind.is_node_level
            ladder.append(kind.child_type)
        if not nodes:
            problem = f"the top cell type {name!r} is neither a node nor made of nodes"
            refuse(
                node, problem, "set isNodeLevel on the type that is one Kubernetes node", key="isNodeLevel", value=name
            )
        if leaves > MOST_CELLS:
            refuse(
                node,
                f"one cell {name!r} has {leaves} leaves",
                f"the limit is {MOST_CELLS}; check childCellNumber",
                key=name,
            )
        self.chains[name] = tuple(reversed(ladder))

    def _cell(self, node: yaml.Node | int, name: str, parent: _Parent, default: int) -> PhysicalCellSpec:
        """A cell and its children. `node` is a line if the cell is generated; `default` is its own address element."""
        reader = self._reader
        keys = {} if isinstance(node, int) else reader.mapping(node, "physicalCells", _KEYS)
        own = reader.text(keys.get("cellType"), "cellType", name)
        if own != name:
            reader.refuse(
                keys["cellType"], f"the cell type {own!r} does not fit here", f"write {name!r} or omit it", value=own
            )
        element = reader.text(keys.get("cellAddress"), "cellAddress", str(default))
        kind = self._types.get(name)
        if not element or "/" in element:
            reader.refuse(
                node, f"cellAddress {element!r} is empty or has a slash", "write one element; omit it to count"
            )
        address = f"{parent.address}/{element}" if parent.address else element
        on_node = parent.on_node
        is_node = kind is not None and kind.is_node_level
        if is_node:
            self._add_node(node, element)
            on_node = element if "cellAddress" in keys else f"{self._chain} {element}"
        if kind is None:
            self._add_device(node, on_node, element)
        pinned_node = keys.get("pinnedCellId")
        self._add_pinned(pinned_node, name)
        children: tuple[PhysicalCellSpec, ...] = ()
        if kind is not None:
            given = self._children(node, keys, kind, address)
            first = 0 if is_node else default * kind.child_number
            place = _Parent(address, on_node)
            children = tuple(self._cell(each, kind.child_type, place, first + i) for i, each in enumerate(given))
        return PhysicalCellSpec(name, address, reader.text(pinned_node, "pinnedCellId"), children)

    def _children(
        self, node: yaml.Node | int, keys: Mapping[str, yaml.Node], kind: CellType, address: str
    ) -> Sequence[yaml.Node | int]:
        """The nodes of a cell's children, or its line for each if they are generated."""
        listed = self._reader.items(keys.get("cellChildren"), "cellChildren")
        count = kind.child_number
        if listed and len(listed) != count:
            problem = f"the cell {address!r} has {len(listed)} in cellChildren, but its type {kind.name!r} has {count}"
            fix = "list all of them, or none"
            self._reader.refuse(keys["cellChildren"], problem, fix, key="cellChildren", value=len(listed))
        return listed or [node if isinstance(node, int) else line_of(node)] * count

    def _add_node(self, node: yaml.Node | int, name: str) -> None:
        key = (self._chain, name)
        line = node if isinstance(node, int) else line_of(node)
        if key in self._nodes:
            problem = f"the node {name!r} is in the chain {self._chain!r} already, on line {self._nodes[key]}"
            self._reader.refuse(node, problem, "list a node once in a chain", key="cellAddress", value=name)
        self._nodes[key] = line

    def _add_device(self, node: yaml.Node | int, on_node: str, element: str) -> None:
        reader = self._reader
        if not (element.isascii() and element.isdigit()):
            problem = f"the leaf {element!r} on node {on_node!r} is not a device index"
            reader.refuse(node, problem, "write a whole number", key="cellAddress", value=element)
        key = (on_node, int(element))
        line = node if isinstance(node, int) else line_of(node)
        if key in self._devices:
            problem = f"device {element} of node {on_node!r} is in a cell already, on line {self._devices[key]}"
            reader.refuse(node, problem, "give each device to one leaf", key="cellAddress", value=element)
        self._devices[key] = line

    def _add_pinned(self, node: yaml.Node | None, name: str) -> None:
        if node is None:
            return
        pinned_id = self._reader.text(node, "pinnedCellId")
        if not pinned_id:
            self._reader.refuse(node, "pinnedCellId is empty", "write an id, or omit the key", key="pinnedCellId")
        if pinned_id in self.pinned:
            problem = f"pinnedCellId {pinned_id!r} is used by another cell"
            self._reader.refuse(node, problem, "give each pinned cell its own id", key="pinnedCellId", value=pinned_id)
        self.pinned[pinned_id] = PinnedPlace(self._chain, name)
