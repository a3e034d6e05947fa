"""The content of a state file as tables: one form for people, for programs, and to compare two files.

A table's first columns are its key. Ids stand in order, because the kubelet writes them in another one every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from node.kubelet.checkpoint import NO_NUMA, Checkpoint
from node.kubelet.cpu_state import CpuState
from node.kubelet.dra_state import DraState
from node.kubelet.memory_state import MemoryState
from ostler.checkpoint.state_file import Content, answer_of

Cell = str | tuple[str, ...]
_MAIN_POD = "(whole pod)"
"""Stands for a container's name if a pod's containers share CPUs or memory."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """Rows under a header; the first ``keys`` columns say what a row is about."""

    name: str
    header: tuple[str, ...]
    keys: int
    rows: tuple[tuple[Cell, ...], ...]

    def documents(self) -> list[dict[str, object]]:
        """The rows as plain data."""
        return [dict(zip(map(field, self.header), map(_plain, row), strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that only one of two files has, or a column in which they differ."""

    change: Literal["added", "removed", "changed"]
    table: StateTable
    key: tuple[Cell, ...]
    column: str
    before: Cell
    after: Cell

    def document(self) -> dict[str, object]:
        """The change as plain data."""
        key = dict(zip(map(field, self.table.header), map(_plain, self.key), strict=False))
        values = {"before": _plain(self.before), "after": _plain(self.after)}
        return {"change": self.change, "table": self.table.name, **key, "column": field(self.column), **values}


def field(column: str) -> str:
    """The name of a column in JSON: ``pod_uid`` for ``POD UID``."""
    return column.lower().replace(" ", "_")


def text(cell: Cell) -> str:
    """A cell for people."""
    return (cell if isinstance(cell, str) else ",".join(cell)) or "-"


def _plain(cell: Cell) -> object:
    return cell if isinstance(cell, str) else list(cell)


def tables(content: Content) -> tuple[StateTable, ...]:
    """Everything that the file says."""
    match content:
        case Checkpoint():
            return _of_devices(content)
        case DraState():
            return _of_claims(content)
        case CpuState():
            return _of_cpus(content)
        case MemoryState():
            return _of_memory(content)


def changes(before: Content, after: Content) -> list[Change]:
    """The changes between two files of one kind, table by table."""
    found: list[Change] = []
    for old, new in zip(tables(before), tables(after), strict=True):
        rows, new_rows = _by_key(old), _by_key(new)
        for key, row in rows.items():
            columns = zip(old.header[old.keys :], row, new_rows.get(key, ()), strict=False)
            if key not in new_rows:
                found += _whole(old, key, row, "removed")
            else:
                found += [Change("changed", old, key[0], name, a, b) for name, a, b in columns if a != b]
        for key, row in new_rows.items():
            if key not in rows:
                found += _whole(new, key, row, "added")
    return found


Key = tuple[tuple[Cell, ...], int]


def _by_key(table: StateTable) -> dict[Key, tuple[Cell, ...]]:
    """The other columns by the key's; the number distinguishes doubles."""
    seen: Counter[tuple[Cell, ...]] = Counter()
    rows = {}
    for row in table.rows:
        key = row[: table.keys]
        rows[key, seen[key]] = row[table.keys :]
        seen[key] += 1
    return rows


def _whole(table: StateTable, key: Key, row: tuple[Cell, ...], change: Literal["added", "removed"]) -> list[Change]:
    column, value = table.header[table.keys], row[0]
    before, after = (value, "") if change == "removed" else ("", value)
    return [Change(change, table, key[0], column, before, after)]


def _of_devices(content: Checkpoint) -> tuple[StateTable, ...]:
    held = sorted(content.held().items())
    allocations = [
        (*key, "-" if node == NO_NUMA else str(node), tuple(sorted(ids or ())))
        for key, entry in held
        for node, ids in sorted((entry.devices or {}).items())
    ]
    answers: list[tuple[Cell, ...]] = []
    for key, entry in held:
        answer = answer_of(entry.response)
        if answer is None:
            answers.append((*key, "unusable", (), (), (), ()))
            continue
        answers.append(
            (
                *key,
                tuple(sorted(f"{name}={given}" for name, given in answer.envs.items())),
                tuple(mount.container_path for mount in answer.mounts),
                tuple(device.container_path for device in answer.devices),
                tuple(device.name for device in answer.cdi_devices),
                tuple(sorted(f"{name}={given}" for name, given in answer.annotations.items())),
            )
        )
    resources = [(name, tuple(sorted(ids or ()))) for name, ids in sorted((content.registered or {}).items())]
    key_columns = ("POD UID", "CONTAINER", "RESOURCE")
    return (
        StateTable("allocations", (*key_columns, "NUMA NODE", "DEVICES"), 4, tuple(allocations)),
        StateTable(
            "answers", (*key_columns, "ENV", "MOUNTS", "DEVICE FILES", "CDI DEVICES", "ANNOTATIONS"), 3, tuple(answers)
        ),
        StateTable("resources", ("RESOURCE", "HEALTHY DEVICES"), 1, tuple(resources)),
    )


def _of_claims(content: DraState) -> tuple[StateTable, ...]:
    claims, devices = [], []
    for claim in sorted(content.claims or (), key=attrgetter("namespace", "name", "uid")):
        claims.append((claim.uid, f"{claim.namespace}/{claim.name}", tuple(sorted(claim.pods or ()))))
        devices += [
            (
                claim.uid,
                driver,
                each.pool,
                each.device,
                each.share_id or "-",
                each.requests or (),
                each.cdi_devices or (),
            )
            for driver, found in sorted((claim.drivers or {}).items())
            for each in found or ()
        ]
    return (
        StateTable("claims", ("CLAIM UID", "CLAIM", "POD UIDS"), 1, tuple(claims)),
        StateTable(
            "devices",
            ("CLAIM UID", "DRIVER", "POOL", "DEVICE", "SHARE", "REQUESTS", "CDI DEVICES"),
            5,
            tuple(devices),
        ),
    )


def _policy(rows: Mapping[str, str]) -> StateTable:
    return StateTable("manager", ("SETTING", "VALUE"), 1, tuple(rows.items()))


def _of_cpus(content: CpuState) -> tuple[StateTable, ...]:
    baselines = content.baselines or {}
    rows = [
        (pod, name, cpus, (baselines.get(pod) or {}).get(name, "")) for pod, name, cpus in sorted(content.containers)
    ]
    rows += [(pod, _MAIN_POD, cpus, "") for pod, cpus in sorted((content.pods or {}).items())]
    rows += [("", each, cpus, "") for each, cpus in sorted((content.by_container_id or {}).items())]
    return (
        _policy({"policy": content.policy, "default CPUs": content.default}),
        StateTable("cpus", ("POD UID", "CONTAINER", "CPUS", "CPUS BEFORE A RESIZE"), 2, tuple(rows)),
    )


def _of_memory(content: MemoryState) -> tuple[StateTable, ...]:
    nodes, kinds = [], []
    for number, node in sorted((content.machine or {}).items()):
        if node is None:
            continue
        nodes.append((str(number), str(node.assignments), _numbers(node.cells)))
        for kind, table in sorted((node.memory or {}).items()):
            if table is not None:
                sizes = (table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
                kinds.append((str(number), kind, *map(str, sizes)))
    holders = [
        (pod, name, blocks) for pod, each in (content.entries or {}).items() for name, blocks in (each or {}).items()
    ]
    holders += [(pod, _MAIN_POD, blocks) for pod, blocks in (content.pods or {}).items()]
    rows = [
        (pod, name, block.kind, _numbers(block.nodes), str(block.size))
        for pod, name, blocks in sorted(holders, key=lambda holder: holder[:2])
        for block in blocks or ()
    ]
    return (
        _policy({"policy": content.policy}),
        StateTable("numa_nodes", ("NUMA NODE", "ASSIGNMENTS", "GROUPED WITH"), 1, tuple(nodes)),
        StateTable(
            "memory",
            ("NUMA NODE", "MEMORY", "TOTAL", "SYSTEM RESERVED", "ALLOCATABLE", "RESERVED", "FREE"),
            2,
            tuple(kinds),
        ),
        StateTable("assignments", ("POD UID", "CONTAINER", "MEMORY", "NUMA NODES", "BYTES"), 4, tuple(rows)),
    )


def _numbers(numbers: Iterable[int] | None) -> tuple[str, ...]:
    return tuple(map(str, numbers or ()))
