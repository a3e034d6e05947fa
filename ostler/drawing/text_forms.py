"""The topology as text: the matrix known from ``nvidia-smi topo -m``, a tree, and plain data for programs.

The tree shows NUMA nodes, bridges and devices, and the cells that placement follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node.topology.model import Cell, CellLevel, Place, Proximity, link_count, proximity
from ostler.drawing.scene import Box, BoxKind, Scene, boxes_of, links_of
from ostler.drawing.text import columns, padded, plain

_LEGEND = {
    Proximity.SAME: "the device itself",
    Proximity.PIX: "at most one PCIe bridge on each side",
    Proximity.PXB: "several PCIe bridges, without the host bridge",
    Proximity.PHB: "through the PCIe host bridge",
    Proximity.NODE: "between host bridges of one NUMA node",
    Proximity.SYS: "between NUMA nodes",
}
_HEADS = {BoxKind.ROOT: "host bridge", BoxKind.SWITCH: "switch", BoxKind.CARD: "card"}
Row = tuple[str, tuple[str, ...]]
"""The tree's branch with what hangs on it, and columns behind."""
Data = str | int | bool | None | list["Data"] | dict[str, "Data"]


def relation(one: Place, two: Place, sign: str) -> str:
    """The matrix's entry for two devices: ``NV18`` where links join two GPUs, else how they reach over PCIe."""
    links = link_count(one, two) if one.gpu and two.gpu else 0
    return f"{sign}{links}" if links else proximity(one, two).value


def draw_matrix(scene: Scene) -> str:
    """The matrix with its legends, as text."""
    places = scene.topology.places
    if not places:
        return "no GPUs and no NICs\n"
    sign = scene.link_sign
    cells = [[relation(row, column, sign) for column in places] for row in places]
    head = ["", *(place.label for place in places), "NUMA node"]
    rows = [
        [place.label, *row, "-" if place.numa_node is None else str(place.numa_node)]
        for place, row in zip(places, cells, strict=True)
    ]
    used = {text for row in cells for text in row}
    lines = [*_table([head, *rows]), "", "Legend:", *_legend(scene, used)]
    if scene.nics:
        lines += ["", "NICs:", *_nic_legend(scene)]
    return "\n".join(lines) + "\n"


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(padded(text, width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _legend(scene: Scene, used: set[str]) -> list[str]:
    meanings: list[tuple[str, str]] = [
        (proximity.value, text) for proximity, text in _LEGEND.items() if proximity.value in used
    ]
    if any(text.startswith(scene.link_sign) for text in used):
        meanings.append((f"{scene.link_sign}#", f"joined by {scene.links_in_words('#')}"))
    return [f"  {sign:<4} = {text}" for sign, text in meanings]


def _nic_legend(scene: Scene) -> list[str]:
    width = max(len(nic.label) for nic in scene.nics) + 1
    return [f"  {nic.label + ':':<{width}} {_nic_name(scene, nic)}" for nic in scene.nics]


def _nic_name(scene: Scene, nic: Place) -> str:
    return plain(" ".join(part for part in (scene.caption(nic).title, nic.address or nic.name) if part))


def draw_tree(scene: Scene) -> str:
    """The tree, as text."""
    lines = [plain(scene.node) or "node"]
    rows = [row for box in _ends(boxes_of(scene.topology)) for row in _box(scene, *box, "")]
    if not rows:
        return f"{lines[0]}\nno GPUs and no NICs\n"
    lines += _aligned(rows)
    if links := _links(scene):
        lines += ["", *links]
    if scene.topology.root is not None and scene.topology.root.children:
        lines += ["", "Cells:", *_cells(scene, scene.topology.root)]
    if scene.topology.overridden:
        lines += ["", f"Placed by the override file: {plain(', '.join(scene.topology.overridden))}"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _ends(members: Sequence[Box | Place]) -> Iterator[tuple[Box | Place, bool]]:
    """Each member, and whether it is the last."""
    for position, member in enumerate(members):
        yield member, position == len(members) - 1


def _box(scene: Scene, member: Box | Place, last: bool, indent: str) -> Iterator[Row]:
    branch = indent + ("└─ " if last else "├─ ")
    if isinstance(member, Place):
        yield branch + member.label, _cells_of(scene, member)
        return
    yield branch + _head(member), ()
    for inner, end in _ends(member.members):
        yield from _box(scene, inner, end, indent + ("   " if last else "│  "))


def _head(box: Box) -> str:
    if box.kind is BoxKind.NUMA:
        return f"NUMA node {box.name}" if box.name else "no NUMA node"
    return f"{_HEADS[box.kind]} {plain(box.name)}"


def _cells_of(scene: Scene, place: Place) -> tuple[str, ...]:
    caption = scene.caption(place)
    notes = [plain(text) for text in (caption.remark, caption.host_use) if text]
    return (
        plain(place.address or place.name),
        plain(caption.title) or "-",
        plain(caption.state) or "-",
        ", ".join(notes),
    )


def _aligned(rows: list[Row]) -> list[str]:
    devices = [row for row in rows if row[1]]
    first = max(columns(branch) for branch, _ in devices)
    widths = [max(columns(cells[column]) for _, cells in devices) for column in range(len(devices[0][1]))]
    lines = []
    for branch, cells in rows:
        parts = [padded(branch, first), *(padded(text, width) for text, width in zip(cells, widths, strict=False))]
        lines.append("  ".join(parts))
    return lines


def _links(scene: Scene) -> list[str]:
    links = links_of(scene.topology)
    if links.mesh:
        return ["Links:", f"  {scene.links_in_words(links.mesh)} between each two GPUs"]
    rows: dict[str, list[str]] = {}
    for gpu, count in links.switched:
        rows.setdefault(f"{scene.links_in_words(count)} to switches", []).append(gpu.label)
    for one, two, count in sorted(links.pairs, key=lambda pair: -pair[2]):
        rows.setdefault(scene.links_in_words(count), []).append(f"{one.label}-{two.label}")
    return ["Links:", *(f"  {words}: {', '.join(who)}" for words, who in rows.items())] if rows else []


def _cells(scene: Scene, cell: Cell, depth: int = 1) -> Iterator[str]:
    labels = {place.name: place.label for place in scene.topology.places}
    gpus = ", ".join(labels[name] for name in cell.gpus)
    nics = f"  near: {', '.join(labels[name] for name in cell.nics)}" if cell.nics else ""
    name = gpus if cell.level is CellLevel.GPU else f"{cell.name}: {gpus}"
    if cell.level is not CellLevel.GPU or cell.nics:
        yield f"{'  ' * depth}{name}{nics}"
    for child in cell.children:
        yield from _cells(scene, child, depth + 1)


def topology_document(scene: Scene) -> dict[str, Data]:
    """Places in order of their labels, the cell tree, and all pairs of places once."""
    places = scene.topology.places
    root = scene.topology.root
    return {
        "node": scene.node,
        "places": [_place(scene, place) for place in places],
        "cells": None if root is None else _cell(root),
        "pairs": [_pair(one, two) for position, one in enumerate(places) for two in places[position + 1 :]],
        "overridden": list(scene.topology.overridden),
    }


def _place(scene: Scene, place: Place) -> Data:
    caption = scene.caption(place)
    return {
        "name": place.name,
        "label": place.label,
        "kind": "gpu" if place.gpu else "nic",
        "pciAddress": place.address,
        "numaNode": place.numa_node,
        "path": list(place.path),
        "links": [{"peer": peer, "count": count} for peer, count in place.links],
        "switchLinks": place.switch_links,
        "title": caption.title,
        "state": caption.state,
        "hostUse": caption.host_use,
    }


def _cell(cell: Cell) -> Data:
    return {
        "name": cell.name,
        "level": cell.level.value,
        "gpus": list(cell.gpus),
        "nics": list(cell.nics),
        "children": [_cell(child) for child in cell.children],
    }


def _pair(one: Place, two: Place) -> Data:
    links = link_count(one, two) if one.gpu and two.gpu else 0
    return {"a": one.name, "b": two.name, "proximity": proximity(one, two).value, "links": links}
