"""The configuration of cells: the physical cluster, the virtual clusters, and the extender's own keys.

Reading is strict. A file that is accepted builds a scheduler: every type is known, every address is complete, every
cell has all of its children, and the virtual clusters fit into the physical cluster. Any other file is refused with one
sentence that names the line, the value and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class CellsConfigurationError(ValueError):
    """A configuration that cannot be used. The message is one sentence; `line` is 0 if it is unknown."""

    def __init__(self, file: str, line: int, problem: str, fix: str = "", *, key: str = "", value: str = "") -> None:
        where = f"{file} line {line}" if line else file
        super().__init__(f"{where}: {problem}{'; ' + fix if fix else ''}")
        self.file = file
        self.line = line
        self.problem = problem
        self.fix = fix
        self.key = key
        self.value = value


@dataclass(frozen=True, slots=True)
class CellType:
    """A cell of this type consists of `child_number` cells of `child_type`. Types without an entry are leaf types."""

    name: str
    child_type: str
    child_number: int
    is_node_level: bool


@dataclass(frozen=True, slots=True)
class PhysicalCellSpec:
    """One physical cell with all of its children. `address` is complete: the elements from the top cell, joined by "/".

    The last element of a node-level cell is the Kubernetes node's name, that of a leaf the index of the device.
    """

    cell_type: str
    address: str
    pinned_id: str
    children: tuple[PhysicalCellSpec, ...]


@dataclass(frozen=True, slots=True)
class VirtualCellSpec:
    """So many cells of the last type of a dotted path, taken from chains of its first type."""

    cell_type: str
    number: int

    @property
    def chain(self) -> str:
        """The type of the top cell."""
        return self.cell_type.partition(".")[0]

    @property
    def preassigned_type(self) -> str:
        """The type of the cells that the virtual cluster owns."""
        return self.cell_type.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class VirtualClusterSpec:
    """What one virtual cluster owns."""

    cells: tuple[VirtualCellSpec, ...]
    pinned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """The keys that only the extender's process uses. Empty means that the key is absent."""

    kube_api_server_address: str = ""
    kube_config_file_path: str = ""
    web_server_address: str = ""
    force_pod_bind_threshold: int = 3
    waiting_pod_scheduling_block_ms: int = 0


@dataclass(frozen=True, slots=True)
class CellsConfiguration:
    """A whole configuration."""

    cell_types: Mapping[str, CellType]
    physical_cells: tuple[PhysicalCellSpec, ...]
    virtual_clusters: Mapping[str, VirtualClusterSpec]
    extender: ExtenderSettings = field(default_factory=ExtenderSettings)

    def ladder(self, top: str) -> tuple[str, ...]:
        """The types of a chain, the leaf type first."""
        found = [top]
        while (kind := self.cell_types.get(found[-1])) is not None:
            found.append(kind.child_type)
        return tuple(reversed(found))

    def node_level(self, top: str) -> int:
        """The level of the chain's nodes, from 1 for leaves; 0 if the chain has none."""
        for level, name in enumerate(self.ladder(top), 1):
            kind = self.cell_types.get(name)
            if kind is not None and kind.is_node_level:
                return level
        return 0


def read_configuration(text: str, source: str = "configuration") -> CellsConfiguration:
    """The configuration of a YAML or JSON text. `source` names it in messages. Raises `CellsConfigurationError`."""
    from scheduling.cells.configuration_text import read

    return read(text, source)
