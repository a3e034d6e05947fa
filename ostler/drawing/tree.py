"""The topology as a tree of text: NUMA nodes, bridges, devices; and the cells that placement follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node.topology.model import Cell, CellLevel, Place
from ostler.drawing.scene import Box, BoxKind, Scene, boxes_of, links_of
from ostler.drawing.text import columns, padded, plain

_HEADS = {BoxKind.ROOT: "host bridge", BoxKind.SWITCH: "switch", BoxKind.CARD: "card"}


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


Row = tuple[str, tuple[str, ...]]
"""The tree's branch with what hangs on it, and columns behind."""


def _ends(members: Sequence[Box | Place]) -> Iterator[tuple[Box | Place, bool]]:
    """Each member, and whether it is the last."""
    for position, member in enumerate(members):
        yield member, position == len(members) - 1


def _box(scene: Scene, member: Box | Place, last: bool, indent: str) -> Iterator[Row]:
    branch = indent + ("└─ " if last else "├─ ")
    if isinstance(member, Place):
        yield branch + member.label, _columns(scene, member)
        return
    yield branch + _head(member), ()
    for inner, end in _ends(member.members):
        yield from _box(scene, inner, end, indent + ("   " if last else "│  "))


def _head(box: Box) -> str:
    if box.kind is BoxKind.NUMA:
        return f"NUMA node {box.name}" if box.name else "no NUMA node"
    return f"{_HEADS[box.kind]} {plain(box.name)}"


def _columns(scene: Scene, place: Place) -> tuple[str, ...]:
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
