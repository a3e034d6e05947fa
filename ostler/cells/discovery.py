"""The GPUs of every node as published in ResourceSlices, and the cells that they form.

A node's cells come from the attributes ``cell2``, ``cell4``, ... that ostler publishes; for other drivers from the PCIe
root and the NUMA node. HiveD's cells of one type all have the same number of children, so a level counts only if all of
its cells on the node are equally large; otherwise it is left out, and a note says so. The node is the last level.

A GPU's number is its position among the node's GPUs by PCI address, as ``nvidia-smi`` counts. That holds only if all
GPUs of the node are published. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from kube.bodies import Json, JsonObject, object_at, text_at

_STANDARD = "resource.kubernetes.io/"
_CELL = re.compile(r"cell(\d{1,4})")
_IN_USE = ("other-door", "overlap", "draining", "holds-unknown", "moving")
"""Taints of ostler that say who has a device, and not that it is bad."""
_PREVENTING = ("NoSchedule", "NoExecute")
_SLUG = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class CellDevice:
    """A GPU as a driver publishes it; ``index``: its number on the node, once all of the node's GPUs are known.

    ``groups``: labels of the cells that it is in, smallest first; ``has_cells``: its driver names them. ``clique``: the
    NVLink domain that reaches beyond the node, empty for none. ``bad``: the taint that makes it unusable. ``left_out``:
    why no cell can have it.
    """

    name: str
    uuid: str
    product: str
    address: str
    groups: tuple[tuple[int, str], ...]
    clique: str
    bad: str
    left_out: str
    has_cells: bool
    index: int = 0

    def is_same(self, other: CellDevice) -> bool:
        """Whether two drivers publish one GPU."""
        return bool((self.uuid and self.uuid == other.uuid) or (self.address and self.address == other.address))


@dataclass(frozen=True, slots=True)
class DeviceCell:
    """GPUs that belong together: their numbers in order, and the smaller cells that they are made of."""

    indices: tuple[int, ...]
    children: tuple[DeviceCell, ...] = ()

    def inner(self) -> Iterator[DeviceCell]:
        """This cell and all cells below it."""
        yield self
        for child in self.children:
            yield from child.inner()


@dataclass(frozen=True, slots=True)
class CellNode:
    """The GPUs of one product on one node, in the order of their numbers, and the tree of their cells."""

    name: str
    product: str
    devices: tuple[CellDevice, ...]
    tree: DeviceCell
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def clique(self) -> str:
        """The NVLink domain of all GPUs; empty if they have none or several."""
        found = {each.clique for each in self.devices}
        return found.pop() if len(found) == 1 else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many GPUs the cells of each level have, from one GPU to all."""
        sizes, cell = [len(self.tree.indices)], self.tree
        while cell.children:
            cell = cell.children[0]
            sizes.append(len(cell.indices))
        return tuple(reversed(sizes))


@dataclass(frozen=True, slots=True)
class DiscoveredCells:
    """All nodes with GPUs, sorted, and what was left out and why, one sentence each."""

    nodes: tuple[CellNode, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedSlice:
    """A slice and the GPUs of its node. ``pool``: driver and name; ``pool_size``: slices of it, 0 if unknown."""

    node: str
    pool: tuple[str, str]
    generation: int
    pool_size: int
    gpus: tuple[CellDevice, ...]


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """All GPUs of a node by number, those that are left out as well. ``nodes``: their cells, one for each product.

    ``is_complete``: False while a slice of a pool's newest generation is missing, and with it perhaps some GPUs.
    """

    devices: tuple[CellDevice, ...] = ()
    nodes: tuple[CellNode, ...] = ()
    notes: tuple[str, ...] = ()
    is_complete: bool = True


def discover(slices: Iterable[JsonObject], nodes: Iterable[JsonObject] = ()) -> DiscoveredCells:
    """The cells of these slices, with the taints of taint rules applied; ``nodes``: for their labels."""
    published: dict[str, list[PublishedSlice]] = {}
    for body in slices:
        each = read_slice(body)
        published.setdefault(each.node, []).append(each)
    labels = {text_at(node, "metadata", "name"): object_at(node, "metadata", "labels") for node in nodes}
    left_out: list[str] = []
    levels: list[str] = []
    made: list[CellNode] = []
    for name in sorted(published):
        texts = {key: text for key, text in labels.get(name, {}).items() if isinstance(text, str)}
        found = node_devices(name, published[name], texts)
        left_out += [
            f"node {name}: {each.name} is left out: {each.left_out}" for each in found.devices if each.left_out
        ]
        levels += [f"node {name}: {why}" for why in found.notes]
        made += found.nodes
    return DiscoveredCells(tuple(made), (*left_out, *levels))


def read_slice(body: JsonObject) -> PublishedSlice:
    """A slice, with the GPUs of its node."""
    spec = object_at(body, "spec")
    driver, node, pool = text_at(spec, "driver"), text_at(spec, "nodeName"), object_at(spec, "pool")
    generation, size = pool.get("generation"), pool.get("resourceSliceCount")
    gpus = [gpu for each in _objects(spec.get("devices")) if node and (gpu := _gpu(driver, each)) is not None]
    return PublishedSlice(
        node,
        (driver, text_at(pool, "name")),
        generation if isinstance(generation, int) else 0,
        size if isinstance(size, int) else 0,
        tuple(gpus),
    )


def node_devices(name: str, slices: Sequence[PublishedSlice], labels: Mapping[str, str] | None = None) -> NodeDevices:
    """The GPUs of one node by all of its slices, of which the newest generation of each pool counts."""
    pools: dict[tuple[str, str], list[PublishedSlice]] = {}
    for each in slices:
        pools.setdefault(each.pool, []).append(each)
    gpus: list[CellDevice] = []
    is_complete = True
    for _, of_pool in sorted(pools.items()):
        newest = max(each.generation for each in of_pool)
        current = [each for each in of_pool if each.generation == newest]
        if any(each.gpus for each in of_pool):
            is_complete &= current[0].pool_size in (0, len(current))
        gpus += [gpu for each in current for gpu in each.gpus]
    # Whole GPUs come first, and among them those whose driver names cells: the first of equal ones counts.
    gpus.sort(key=lambda each: (bool(each.left_out), not each.has_cells, each.address, each.name))
    found: list[CellDevice] = []
    for gpu in gpus:
        if not any(gpu.is_same(other) for other in found):
            found.append(gpu)
    devices = _numbered(found)
    whole = [each for each in devices if not each.left_out]
    made, notes = [], []
    for product in sorted({each.product for each in whole}):
        own = tuple(each for each in whole if each.product == product)
        tree, levels = _tree(own)
        notes += levels
        made.append(CellNode(name, product, own, tree, labels or {}))
    return NodeDevices(devices, tuple(made), tuple(notes), is_complete)


def _gpu(driver: str, device: JsonObject) -> CellDevice | None:
    attributes = object_at(device, "attributes")
    if _text(attributes, "type") != "gpu":
        return None
    left_out = ""
    if device.get("allowMultipleAllocations") is True:
        left_out = "its rule shares it, and a cell is a whole GPU"
    elif object_at(attributes, "migEnabled").get("bool") is True:
        left_out = "it is in MIG mode, and a cell is a whole GPU"
    groups = []
    for name in attributes:
        match = _CELL.fullmatch(name)
        if match and (label := _text(attributes, name)):
            groups.append((int(match[1]), label))
    has_cells = bool(groups)
    if not has_cells:
        # Another driver's: places as far as it publishes them, which nest in this order.
        root, numa = _text(attributes, f"{_STANDARD}pcieRoot"), object_at(attributes, f"{_STANDARD}numaNode").get("int")
        groups = [(1, root)] if root else []
        groups += [(2, f"numa-{numa}")] if isinstance(numa, int) else []
    return CellDevice(
        text_at(device, "name"),
        _text(attributes, "uuid"),
        _text(attributes, "productName") or "GPU",
        _text(attributes, f"{_STANDARD}pciBusID"),
        tuple(sorted(groups)),
        _text(attributes, "clique"),
        _bad(driver, device),
        left_out,
        has_cells,
    )


def _bad(driver: str, device: JsonObject) -> str:
    """The first taint that makes a device unusable for everybody; empty for none."""
    for taint in _objects(device.get("taints")):
        key, effect, text = (text_at(taint, name) for name in ("key", "effect", "value"))
        domain, _, cause = key.partition("/")
        if effect in _PREVENTING and not (domain == driver and cause in _IN_USE):
            return f"{key}{'=' if text else ''}{text}"
    return ""


def _numbered(published: Iterable[CellDevice]) -> tuple[CellDevice, ...]:
    """The GPUs by number: all count, also those that no cell can have."""
    ordered = sorted(published, key=lambda each: (each.address or each.name, each.name))
    return tuple(replace(each, index=number) for number, each in enumerate(ordered))


def _tree(devices: Sequence[CellDevice]) -> tuple[DeviceCell, list[str]]:
    """The tree of a node's cells, and why levels are left out."""
    cells = [DeviceCell((each.index,)) for each in devices]
    left_out = []
    for level in sorted({level for each in devices for level, _ in each.groups}):
        labels = {each.index: label for each in devices for own, label in each.groups if own == level}
        merged: dict[str, list[DeviceCell]] = {}
        for cell in cells:
            found = {labels.get(index, "") for index in cell.indices}
            if len(found) != 1 or "" in found:
                break
            merged.setdefault(found.pop(), []).append(cell)
        else:
            counts = sorted({len(children) for children in merged.values()})
            if len(merged) == len(cells):
                continue
            if len(counts) == 1:
                cells = [_joined(children) for children in merged.values()]
            else:
                sizes = sorted(sum(len(cell.indices) for cell in children) for children in merged.values())
                left_out.append(
                    f"its cells of one level have {', '.join(map(str, sizes))} GPUs; HiveD's have equally many, so the"
                    " level is left out"
                )
            continue
        left_out.append("some GPUs publish no cell of one level, so the level is left out")
    return (cells[0] if len(cells) == 1 else _joined(cells)), left_out


def _joined(children: Sequence[DeviceCell]) -> DeviceCell:
    ordered = sorted(children, key=attrgetter("indices"))
    return DeviceCell(tuple(sorted(index for cell in ordered for index in cell.indices)), tuple(ordered))


def slug(text: str) -> str:
    """A text as the name of a cell type or an element of an address."""
    return _SLUG.sub("-", text).strip("-") or "GPU"


def _text(attributes: JsonObject, name: str) -> str:
    return text_at(attributes, name, "string")


def _objects(found: Json) -> Iterator[JsonObject]:
    return (each for each in found if isinstance(each, dict)) if isinstance(found, list) else iter(())
