"""The kubelet's record of who has which memory (``memory_manager_state``): text to values, as each kubelet reads it."""

from __future__ import annotations

from collections.abc import Mapping

from node.kubelet import gojson
from node.kubelet.godump import NIL, listed, mapped
from node.kubelet.gojson import FieldPlace
from node.kubelet.gojson import Value as JsonTree
from node.kubelet.resource_state import ResourceManager, ResourceStateError, Since, StateForm, by_bytes, decode
from node.values import Value, replace, value

FILE_NAME = "memory_manager_state"
"""Name of the file in the kubelet's root."""


@value
class MemoryTable(Value):
    """Bytes of one kind of memory on a NUMA node."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


@value
class NumaNode(Value):
    """A NUMA node: its assignments, its memory by kind, and the nodes that it is grouped with (itself included)."""

    assignments: int = 0
    memory: Mapping[str, MemoryTable | None] | None = None
    cells: tuple[int, ...] | None = None


@value
class MemoryBlock(Value):
    """Bytes of one kind of memory that a container has on these NUMA nodes together."""

    nodes: tuple[int, ...] | None = None
    kind: str = ""
    size: int = 0


Blocks = tuple[MemoryBlock, ...] | None


@value
class MemoryState(Value):
    """Who has which memory, and what every NUMA node has. ``pods``: blocks of whole pods (beta in 1.37)."""

    policy: str = ""
    machine: Mapping[int, NumaNode | None] | None = None
    entries: Mapping[str, Mapping[str, Blocks] | None] | None = None
    pods: Mapping[str, Blocks] | None = None


def decode_memory(text: bytes, since: Since) -> MemoryState:
    """The file's content, as kubelets from release ``since`` on read it; raises ``ResourceStateError``."""
    state = decode(_MEMORY, text, since)
    for number, node in (state.machine or {}).items():
        for kind, table in ((node and node.memory) or {}).items():
            if table is None:
                # Copying the table is a nil dereference in every version.
                raise ResourceStateError(f"panic: NUMA node {number} has no table of {kind}", "content", content=state)
    return state


def contradiction(state: MemoryState) -> str:
    """Why a kubelet with the static policy refuses this content on every machine; empty where none does."""
    if state.policy == "Static" and not state.machine and state.entries:
        return "memory is assigned to containers, but the file has no NUMA node"
    return ""


def _memory_field(state: MemoryState, form: StateForm, name: str, member: JsonTree, path: str) -> MemoryState:
    def place(field: str, type_name: str) -> FieldPlace:
        return FieldPlace(f"{form.struct}.{path}{field}", type_name)

    match name:
        case "policyname" if member is not None:
            return replace(state, policy=gojson.string(member, place("policyName", "string")))
        case "machinestate":
            nodes = place("machineState", "state.NUMANodeMap")
            pairs = gojson.members(member, nodes)
            if pairs is None:
                return replace(state, machine=None)
            machine = {gojson.integer_key(key, nodes, "int"): _numa_node(each, path) for key, each in pairs}
            return replace(state, machine=machine)
        case "entries":
            pods = place("entries", "state.ContainerMemoryAssignments")
            pairs = gojson.members(member, pods)
            if pairs is None:
                return replace(state, entries=None)
            return replace(state, entries={pod: _containers(each, pods, path) for pod, each in pairs})
        case "podentries" if form.pods:
            own = place("podEntries", "state.PodMemoryAssignments")
            pairs = gojson.members(member, own)
            if pairs is None:
                return replace(state, pods=None)
            return replace(state, pods={pod: _pod_blocks(each, own, path) for pod, each in pairs})
        case _:
            return state


def _numa_node(tree: JsonTree, path: str) -> NumaNode | None:
    if tree is None:
        return None
    begin = f"NUMANodeState.{path}machineState."
    node = NumaNode()
    place = FieldPlace(f"{begin}memoryMap", "map[v1.ResourceName]*state.MemoryTable")
    for name, member in gojson.members(tree, FieldPlace(begin[:-1], "state.NUMANodeState")) or ():
        match name.casefold():
            case "numberofassignments":
                assignments = gojson.integer(member, FieldPlace(f"{begin}numberOfAssignments", "int"))
                node = NumaNode(assignments, node.memory, node.cells)
            case "memorymap":
                pairs = gojson.members(member, place)
                tables = None if pairs is None else {kind: _table(each, path) for kind, each in pairs}
                node = NumaNode(node.assignments, tables, node.cells)
            case "cells":
                node = NumaNode(node.assignments, node.memory, _integers(member, f"{begin}cells"))
    return node


_TABLE = {
    "total": ("total", "total"),
    "systemreserved": ("systemReserved", "system_reserved"),
    "allocatable": ("allocatable", "allocatable"),
    "reserved": ("reserved", "reserved"),
    "free": ("free", "free"),
}


def _table(tree: JsonTree, path: str) -> MemoryTable | None:
    if tree is None:
        return None
    begin = f"{path}machineState.memoryMap"
    numbers = {}
    for name, member in gojson.members(tree, FieldPlace(begin, "state.MemoryTable")) or ():
        if name.casefold() in _TABLE:
            field, own = _TABLE[name.casefold()]
            numbers[own] = gojson.unsigned(member, FieldPlace(f"MemoryTable.{begin}.{field}", "uint64"))
    return MemoryTable(**numbers)


def _integers(tree: JsonTree, path: str) -> tuple[int, ...] | None:
    items = gojson.elements(tree, FieldPlace(path, "[]int"))
    return None if items is None else tuple(gojson.integer(each, FieldPlace(path, "int")) for each in items)


def _containers(tree: JsonTree, place: FieldPlace, path: str) -> dict[str, Blocks] | None:
    pairs = gojson.members(tree, place.of("map[string][]state.Block"))
    return None if pairs is None else {name: _blocks(each, place, f"{path}entries") for name, each in pairs}


def _pod_blocks(tree: JsonTree, place: FieldPlace, path: str) -> Blocks:
    blocks: Blocks = None
    for name, member in gojson.members(tree, place.of("state.PodEntry")) or ():
        if name.casefold() == "memoryblocks":
            begin = f"{path}podEntries.memoryBlocks"
            blocks = _blocks(member, FieldPlace(f"PodEntry.{begin}", "[]state.Block"), begin)
    return blocks


def _blocks(tree: JsonTree, place: FieldPlace, path: str) -> Blocks:
    items = gojson.elements(tree, place.of("[]state.Block"))
    return None if items is None else tuple(_block(each, place, path) for each in items)


def _block(tree: JsonTree, place: FieldPlace, path: str) -> MemoryBlock:
    nodes: tuple[int, ...] | None = None
    kind, size = "", 0
    for name, member in gojson.members(tree, place.of("state.Block")) or ():
        match name.casefold():
            case "numaaffinity":
                nodes = _integers(member, f"Block.{path}.numaAffinity")
            case "type":
                kind = gojson.string(member, FieldPlace(f"Block.{path}.type", "v1.ResourceName"))
            case "size":
                size = gojson.unsigned(member, FieldPlace(f"Block.{path}.size", "uint64"))
    return MemoryBlock(nodes, kind, size)


def _dump_memory(state: MemoryState, form: StateForm, struct: str) -> str:
    machine = None if state.machine is None else [(str(n), _dump_node(state.machine[n])) for n in sorted(state.machine)]
    entries = None
    if state.entries is not None:
        entries = [(pod, _dump_containers(names)) for pod, names in by_bytes(state.entries.items())]
    pods = ""
    if form.pods:
        own = state.pods
        each = None
        if own is not None:
            each = [
                (pod, f"{{MemoryBlocks:([]state.Block){_dump_blocks(blocks)}}}")
                for pod, blocks in by_bytes(own.items())
            ]
        pods = f" PodEntries:(state.PodMemoryAssignments){mapped(each)}"
    return (
        f"(*state.{struct}){{PolicyName:(string){state.policy} MachineState:(state.NUMANodeMap){mapped(machine)} "
        f"Entries:(state.ContainerMemoryAssignments){mapped(entries)}{pods} Checksum:(checksum.Checksum)0}}"
    )


def _dump_node(node: NumaNode | None) -> str:
    if node is None:
        return NIL
    memory = None if node.memory is None else [(k, _dump_table(table)) for k, table in by_bytes(node.memory.items())]
    return (
        f"<*>{{NumberOfAssignments:(int){node.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){mapped(memory)} "
        f"Cells:([]int){listed(None if node.cells is None else map(str, node.cells))}}}"
    )


def _dump_table(table: MemoryTable | None) -> str:
    if table is None:
        return NIL
    return (
        f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _dump_containers(containers: Mapping[str, Blocks] | None) -> str:
    return mapped(None if containers is None else [(n, _dump_blocks(each)) for n, each in by_bytes(containers.items())])


def _dump_blocks(blocks: Blocks) -> str:
    if blocks is None:
        return NIL
    return listed(
        f"{{NUMAAffinity:([]int){listed(None if block.nodes is None else map(str, block.nodes))} "
        f"Type:(v1.ResourceName){block.kind} Size:(uint64){block.size}}}"
        for block in blocks
    )


_MEMORY = ResourceManager(
    "memory manager",
    "v3",
    "MemoryManagerCheckpointV1",
    "MemoryManagerCheckpoint",
    {
        "1.34": (StateForm("MemoryManagerCheckpoint", ("MemoryManagerCheckpoint",), lax=False),),
        "1.36": (StateForm("MemoryManagerCheckpointV1", ("MemoryManagerCheckpointV1", "MemoryManagerCheckpoint")),),
        "1.37": (
            StateForm("MemoryManagerCheckpointV2", ("MemoryManagerCheckpoint",), lax=False, pods=True),
            StateForm("MemoryManagerCheckpointV1", ("MemoryManagerCheckpoint",)),
        ),
    },
    lambda form: MemoryState(machine={}, entries={}, pods={} if form.pods else None),
    _memory_field,
    _dump_memory,
)
