"""Reads a configuration file: keys, physical cells with their addresses, virtual clusters.

Every mistake ends the reading at its line. What is read later relies on what was checked before: types first, then the
physical cells, then what virtual clusters want of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from scheduling.cells.configuration import (
    CellsConfiguration,
    CellsConfigurationError,
    CellType,
    ExtenderSettings,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from scheduling.cells.physical_text import PhysicalReader
from scheduling.cells.yaml_nodes import YamlTextError, boolean, first_document, kind_of, line_of, number, scalar_text

if TYPE_CHECKING:
    import yaml

_TOP_KEYS: Final = (
    "kubeApiServerAddress",
    "kubeConfigFilePath",
    "webServerAddress",
    "forcePodBindThreshold",
    "waitingPodSchedulingBlockMilliSec",
    "physicalCluster",
    "virtualClusters",
)


class ConfigurationReader:
    """Reads nodes of one file; every refusal names the line."""

    def __init__(self, source: str) -> None:
        self.source = source

    def refuse(self, node: yaml.Node | int, problem: str, fix: str, *, key: str = "", value: object = "") -> NoReturn:
        """Raise the error for a node, or for a line."""
        line = node if isinstance(node, int) else line_of(node)
        raise CellsConfigurationError(self.source, line, problem, fix, key=key, value=str(value))

    def mapping(self, node: yaml.Node, key: str, known: Iterable[str] | None = None) -> dict[str, yaml.Node]:
        """A map's values by key, without those that are null. Unknown and repeated keys are refused."""
        if kind_of(node) == "null":
            return {}
        if kind_of(node) != "map":
            self.refuse(node, f"{key} must be a map, not a {kind_of(node)}", "write it as keys and values", key=key)
        found: dict[str, yaml.Node] = {}
        seen: set[str] = set()
        for name_node, value in node.value:
            name = scalar_text(name_node)
            if name is None:
                self.refuse(name_node, f"{key} has a key that is not a text", "write a plain name as key", key=key)
            if known is not None and name not in known:
                self._unknown(name_node, key, name, tuple(known))
            if name in seen:
                self.refuse(name_node, f"{key} has the key {name!r} twice", "remove one of them", key=name)
            seen.add(name)
            if kind_of(value) != "null":
                found[name] = value
        return found

    def _unknown(self, node: yaml.Node, where: str, name: str, known: tuple[str, ...]) -> NoReturn:
        near = difflib.get_close_matches(name, known, 1)
        fix = f"write {near[0]!r}" if near else f"remove it, or use one of {', '.join(known)}"
        self.refuse(node, f"{where} has the unknown key {name!r}", fix, key=name)

    def items(self, node: yaml.Node | None, key: str) -> list[yaml.Node]:
        """A list's values; none if it is absent."""
        if node is None:
            return []
        if kind_of(node) != "list":
            self.refuse(node, f"{key} must be a list, not a {kind_of(node)}", "write one '-' for each item", key=key)
        return list(node.value)

    def text(self, node: yaml.Node | None, key: str, default: str = "") -> str:
        """A text; numbers are taken as they are written."""
        if node is None:
            return default
        found = scalar_text(node)
        if found is None:
            self.refuse(node, f"{key} must be a text, not a {kind_of(node)}", "write a single value", key=key)
        return found

    def integer(self, node: yaml.Node | None, key: str, default: int, least: int) -> int:
        """A whole number of at least `least`."""
        if node is None:
            return default
        found = number(node)
        if found is None or found != int(found) or kind_of(node) != "int" or found < least:
            shown = repr(node.value) if scalar_text(node) is not None else f"a {kind_of(node)}"
            self.refuse(node, f"{key} is {shown}", f"write a whole number of at least {least}", key=key, value=shown)
        return int(found)

    def flag(self, node: yaml.Node | None, key: str) -> bool:
        """A boolean; false if it is absent."""
        if node is None:
            return False
        found = boolean(node)
        if found is None:
            shown = repr(node.value) if scalar_text(node) is not None else f"a {kind_of(node)}"
            self.refuse(node, f"{key} is {shown}", "write true or false", key=key, value=shown)
        return found


def read(text: str, source: str) -> CellsConfiguration:
    """The configuration of a text."""
    reader = ConfigurationReader(source)
    try:
        node = first_document(text)
    except YamlTextError as error:
        raise CellsConfigurationError(
            source, error.line, f"not valid YAML: {error.problem}", "correct the text"
        ) from error
    if node is None or kind_of(node) == "null":
        reader.refuse(0, "the file is empty", "write physicalCluster and virtualClusters")
    keys = reader.mapping(node, "the file", _TOP_KEYS)
    for name in ("physicalCluster", "virtualClusters"):
        if name not in keys:
            reader.refuse(node, f"{name} is missing", f"add {name}", key=name)
    cluster = reader.mapping(keys["physicalCluster"], "physicalCluster", ("skuTypes", "cellTypes", "physicalCells"))
    cell_types = _read_types(reader, cluster.get("cellTypes"))
    physical = PhysicalReader(reader, cell_types)
    physical.read(cluster.get("physicalCells"))
    if not physical.cells:
        reader.refuse(
            keys["physicalCluster"], "physicalCells has no cell", "list the cluster's top cells", key="physicalCells"
        )
    clusters, lines = _read_virtual(reader, keys["virtualClusters"], physical)
    configuration = CellsConfiguration(cell_types, tuple(physical.cells), clusters, _read_extender(reader, keys))
    _check_fit(reader, configuration, physical, lines)
    return configuration


def _read_extender(reader: ConfigurationReader, keys: Mapping[str, yaml.Node]) -> ExtenderSettings:
    defaults = ExtenderSettings()
    return ExtenderSettings(
        kube_api_server_address=reader.text(keys.get("kubeApiServerAddress"), "kubeApiServerAddress"),
        kube_config_file_path=reader.text(keys.get("kubeConfigFilePath"), "kubeConfigFilePath"),
        web_server_address=reader.text(keys.get("webServerAddress"), "webServerAddress", defaults.web_server_address),
        force_pod_bind_threshold=reader.integer(
            keys.get("forcePodBindThreshold"), "forcePodBindThreshold", defaults.force_pod_bind_threshold, 0
        ),
        waiting_pod_scheduling_block_ms=reader.integer(
            keys.get("waitingPodSchedulingBlockMilliSec"), "waitingPodSchedulingBlockMilliSec", 0, 0
        ),
    )


def _read_types(reader: ConfigurationReader, node: yaml.Node | None) -> dict[str, CellType]:
    found: dict[str, CellType] = {}
    nodes = {} if node is None else reader.mapping(node, "cellTypes")
    for name, each in nodes.items():
        key = f"cellTypes.{name}"
        if not name or "." in name or "/" in name:
            reader.refuse(each, f"the cell type {name!r} has a dot, a slash or no name", "rename it", key=key)
        keys = reader.mapping(each, key, ("childCellType", "childCellNumber", "isNodeLevel"))
        child = reader.text(keys.get("childCellType"), f"{key}.childCellType")
        if not child:
            reader.refuse(each, f"{key}.childCellType is missing", "name the type of its children", key=key)
        if "childCellNumber" not in keys:
            reader.refuse(each, f"{key}.childCellNumber is missing", "write how many children it has", key=key)
        count = reader.integer(keys.get("childCellNumber"), f"{key}.childCellNumber", 0, 1)
        found[name] = CellType(name, child, count, reader.flag(keys.get("isNodeLevel"), f"{key}.isNodeLevel"))
    for name in found:
        _check_ladder(reader, nodes[name], name, found)
    return found


def _check_ladder(reader: ConfigurationReader, node: yaml.Node, name: str, types: Mapping[str, CellType]) -> None:
    """A type's descendants end in a leaf, and at most one of them is node level."""
    seen = [name]
    while (kind := types.get(seen[-1])) is not None:
        if kind.child_type in seen:
            path = " -> ".join([*seen, kind.child_type])
            reader.refuse(
                node, f"the cell type {name!r} contains itself: {path}", "end the types in a leaf type", key=name
            )
        seen.append(kind.child_type)
    levels = [each for each in seen if each in types and types[each].is_node_level]
    if len(levels) > 1:
        both = " and ".join(levels[:2])
        reader.refuse(node, f"{both} are both node level in one chain", "set isNodeLevel on one of them", key=name)


_Lines: TypeAlias = dict[tuple[str, str], int]


def _read_virtual(
    reader: ConfigurationReader, node: yaml.Node, physical: PhysicalReader
) -> tuple[dict[str, VirtualClusterSpec], _Lines]:
    """The virtual clusters, and the line on which each wants cells of a chain."""
    found: dict[str, VirtualClusterSpec] = {}
    lines: _Lines = {}
    owners: dict[str, str] = {}
    for name, each in reader.mapping(node, "virtualClusters").items():
        key = f"virtualClusters.{name}"
        if not name or "/" in name:
            reader.refuse(each, f"the virtual cluster {name!r} has a slash or no name", "rename it", key=key)
        keys = reader.mapping(each, key, ("virtualCells", "pinnedCells"))
        cells: list[VirtualCellSpec] = []
        for item in reader.items(keys.get("virtualCells"), f"{key}.virtualCells"):
            spec = _read_virtual_cell(reader, item, f"{key}.virtualCells", physical)
            lines[name, spec.chain] = line_of(item)
            cells.append(spec)
        pinned: list[str] = []
        for item in reader.items(keys.get("pinnedCells"), f"{key}.pinnedCells"):
            pinned_id = _read_pinned(reader, item, f"{key}.pinnedCells", physical)
            if pinned_id in owners:
                problem = f"the pinned cell {pinned_id!r} belongs to {owners[pinned_id]} already"
                reader.refuse(item, problem, "give a pinned cell to one virtual cluster once", key=key, value=pinned_id)
            owners[pinned_id] = name
            lines.setdefault((name, physical.pinned[pinned_id].chain), line_of(item))
            pinned.append(pinned_id)
        found[name] = VirtualClusterSpec(tuple(cells), tuple(pinned))
    return found, lines


def _read_virtual_cell(
    reader: ConfigurationReader, node: yaml.Node, key: str, physical: PhysicalReader
) -> VirtualCellSpec:
    keys = reader.mapping(node, key, ("cellType", "cellNumber"))
    path = reader.text(keys.get("cellType"), f"{key}.cellType")
    if not path:
        reader.refuse(
            node, f"{key} has an item without cellType", "write the path of types, from the top type", key=key
        )
    if "cellNumber" not in keys:
        reader.refuse(
            node, f"{key} has no cellNumber for {path!r}", "write how many cells it owns", key=key, value=path
        )
    spec = VirtualCellSpec(path, reader.integer(keys.get("cellNumber"), f"{key}.cellNumber", 0, 0))
    where = keys["cellType"]
    if spec.chain not in physical.chains:
        near = ", ".join(sorted(physical.chains))
        problem = f"{key} wants {path!r}, but {spec.chain!r} is not the type of a top cell in physicalCells"
        reader.refuse(where, problem, f"begin with one of {near}", key=key, value=path)
    ladder = list(reversed(physical.chains[spec.chain]))
    position = 0
    for element in path.split(".")[1:]:
        if element not in ladder[position + 1 :]:
            below = ", ".join(ladder[position + 1 :]) or "nothing"
            problem = f"{key} wants {path!r}, but {element!r} is not below {ladder[position]!r}"
            reader.refuse(where, problem, f"below it are {below}", key=key, value=path)
        position = ladder.index(element)
    return spec


def _read_pinned(reader: ConfigurationReader, node: yaml.Node, key: str, physical: PhysicalReader) -> str:
    keys = reader.mapping(node, key, ("pinnedCellId",))
    pinned_id = reader.text(keys.get("pinnedCellId"), f"{key}.pinnedCellId")
    if not pinned_id:
        reader.refuse(node, f"{key} has an item without pinnedCellId", "name the pinned cell", key=key)
    if pinned_id not in physical.pinned:
        known = ", ".join(sorted(physical.pinned)) or "none"
        problem = f"{key} names the pinned cell {pinned_id!r}, which no physical cell has"
        reader.refuse(node, problem, f"pinned in physicalCells: {known}", key=key, value=pinned_id)
    return pinned_id


def _check_fit(
    reader: ConfigurationReader,
    configuration: CellsConfiguration,
    physical: PhysicalReader,
    lines: Mapping[tuple[str, str], int],
) -> None:
    """All virtual clusters together fit into each chain, from its top level down."""
    wanted: dict[tuple[str, str], int] = {}
    for spec in configuration.virtual_clusters.values():
        for cell in spec.cells:
            key = (cell.chain, cell.preassigned_type)
            wanted[key] = wanted.get(key, 0) + cell.number
        for pinned_id in spec.pinned:
            place = physical.pinned[pinned_id]
            wanted[place.chain, place.cell_type] = wanted.get((place.chain, place.cell_type), 0) + 1
    for chain, ladder in physical.chains.items():
        available = sum(each.cell_type == chain for each in physical.cells)
        for name in reversed(ladder):
            need = wanted.get((chain, name), 0)
            if need > available:
                line = max((number for (_, other), number in lines.items() if other == chain), default=0)
                problem = (
                    f"virtual clusters want {need} cells {name!r} of the chain {chain!r}, but {available} are left"
                )
                reader.refuse(line, problem, "lower a cellNumber or add physical cells", key=name, value=need)
            kind = configuration.cell_types.get(name)
            available = (available - need) * (kind.child_number if kind else 1)
