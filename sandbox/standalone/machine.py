"""The NUMA nodes of the embedded kubelet's machine: from a file, a recording, or sysfs.

A kubelet needs them for its topology manager alone. A file is YAML or JSON: ``numaNodes`` is a list of nodes with an
``id`` each, and the ``distances`` to all nodes in the order of that list, as the kernel gives them. Without distances a
node is 10 from itself and 20 from every other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from node.documents import DocumentRefused
from node.inventory.recordings.source import read
from node.named_files import read_named_file
from node.opening import read_kernel_text
from node.yaml_text import parse_yaml

_LARGEST: Final = 1 << 20
_MOST_NODES: Final = 64
"""A hint's mask has as many bits."""
_IDS: Final = range(_MOST_NODES)
_DISTANCES: Final = range(256)
_NEAR, _FAR, _UNREACHABLE = 10, 20, 255
_SYSFS: Final = Path("/sys/devices/system/node")


class MachineError(ValueError):
    """The NUMA topology is not usable; the text names the place, the value and the fix."""


@dataclass(frozen=True, slots=True)
class NumaTopology:
    """NUMA ids, and for each of them its distances, indexed by NUMA id."""

    nodes: tuple[int, ...]
    distances: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, nodes: Collection[int], rows: Mapping[int, Sequence[int]] | None = None) -> NumaTopology:
        """The topology of ``nodes``; ``rows``: distances of a node to all, in the order of the ids."""
        ids = tuple(sorted(nodes)) or (0,)
        rows = rows or {node: [_NEAR if node == other else _FAR for other in ids] for node in ids}
        size = ids[-1] + 1
        indexed = {}
        for node in ids:
            indexed[node] = [_UNREACHABLE] * size
            for other, distance in zip(ids, rows[node], strict=True):
                indexed[node][other] = distance
        return cls(ids, indexed)


def numa_topology(text: str) -> NumaTopology:
    """What ``--numa`` says: a number of nodes, or the path of a file. Raises ``MachineError``."""
    if text.isascii() and text.isdigit():
        count = int(text[:9])
        if not 1 <= count <= _MOST_NODES:
            raise MachineError(f"--numa: must be 1 to {_MOST_NODES} nodes, is {text}; or name a file")
        return NumaTopology.of(range(count))
    try:
        document = parse_yaml(read_named_file(Path(text), _LARGEST, fifo=True))
    except OSError as error:
        raise MachineError(f"--numa: {text}: {error.strerror or error}") from error
    except DocumentRefused as error:
        raise MachineError(f"{text}: {error}") from error
    return _topology_in(text, document)


def recorded_topology(path: Path) -> NumaTopology:
    """The NUMA nodes that a recorded node's PCI devices are at; raises ``RecordingError``."""
    sysfs = read(path).facts.sysfs
    functions = sysfs.pci if sysfs is not None else ()
    return NumaTopology.of({each.numa_node for each in functions or () if each.numa_node is not None})


def own_topology(folder: Path = _SYSFS) -> NumaTopology:
    """This machine's NUMA nodes; one node if the kernel reports none."""
    rows: dict[int, list[int]] = {}
    for node in folder.glob("node[0-9]*"):
        try:
            rows[int(node.name.removeprefix("node"))] = [
                int(word) for word in read_kernel_text(node / "distance").split()
            ]
        except (OSError, ValueError):
            continue
    if not all(len(row) == len(rows) for row in rows.values()):
        return NumaTopology.of(rows)
    return NumaTopology.of(rows, rows)


def _topology_in(where: str, document: Any) -> NumaTopology:
    if not isinstance(document, dict):
        raise MachineError(f"{where}: must be a mapping with the key numaNodes, is {document!r}")
    unknown = sorted(str(key) for key in document if key != "numaNodes")
    if unknown:
        raise MachineError(f"{where}: {unknown[0]}: unknown key; the only key is numaNodes")
    entries = document.get("numaNodes")
    if not isinstance(entries, list) or not 1 <= len(entries) <= _MOST_NODES:
        raise MachineError(f"{where}: numaNodes: must be a list of 1 to {_MOST_NODES} nodes, is {entries!r}")
    written = [_node_in(f"{where}: numaNodes[{index}]", entry) for index, entry in enumerate(entries)]
    ids = [node for node, _ in written]
    for index, node in enumerate(ids):
        if node in ids[:index]:
            raise MachineError(f"{where}: numaNodes[{index}].id: {node} stands there twice; every node has its own id")
    given = [row is not None for _, row in written]
    if not any(given):
        return NumaTopology.of(ids)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    rows = {}
    for index, (node, row) in enumerate(written):
        if row is None or len(row) != len(ids):
            found = "missing" if row is None else f"{len(row)} numbers"
            raise MachineError(
                f"{where}: numaNodes[{index}].distances: must be {len(ids)} numbers, one for each node, is {found}; "
                "leave distances out at every node for 10 and 20"
            )
        rows[node] = [row[other] for other in order]
    return NumaTopology.of(ids, rows)


def _node_in(where: str, entry: Any) -> tuple[int, list[int] | None]:
    if not isinstance(entry, dict):
        raise MachineError(f"{where}: must be a mapping with id and distances, is {entry!r}")
    unknown = sorted(str(key) for key in entry if key not in ("id", "distances"))
    if unknown:
        raise MachineError(f"{where}.{unknown[0]}: unknown key; must be id or distances")
    node, row = entry.get("id"), entry.get("distances")
    if type(node) is not int or node not in _IDS:
        raise MachineError(f"{where}.id: must be a number from 0 to {_MOST_NODES - 1}, is {node!r}")
    if row is None:
        return node, None
    if not isinstance(row, list) or not all(type(each) is int and each in _DISTANCES for each in row):
        raise MachineError(f"{where}.distances: must be a list of numbers from 0 to 255, is {row!r}")
    return node, row
