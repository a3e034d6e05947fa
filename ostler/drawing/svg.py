"""A picture of the node: NUMA nodes, switches, GPUs, NICs and the links between GPUs, as one SVG file.

The file stands alone: no fonts, scripts or pictures from elsewhere. Every text from outside is made printable and
escaped here. No fact is shown by colour alone, and the legend explains only signs that the picture has.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from operator import attrgetter

from node.topology.model import Place
from ostler.drawing.arrangement import HEAD, PADDING, Arrangement, Curve, Rectangle, arrange, curves_of, deepest
from ostler.drawing.scene import Box, BoxKind, Caption, Links, Scene, boxes_of, links_of
from ostler.drawing.text import clipped, number, plain, width_of

MARGIN = 28
TITLE = 74
PLANE = 34
LEAST_WIDTH = 600
LEGEND_LINE = 24
STRENGTHS = ("#2e7d1f", "#7a52c7", "#b86e00", "#5b6773")
"""Colours of links, from the pairs with most links to those with fewest."""
SANS = "'DejaVu Sans','Segoe UI','Helvetica Neue',Arial,sans-serif"
MONO = "'DejaVu Sans Mono',Consolas,Menlo,monospace"
INK, SOFT = "#1c2733", "#4b5865"
WELL, ILL, UNKNOWN = "#1e7b34", "#c22525", "#6b7683"
NIC_FILL, NIC_LINE = "#e2edfb", "#3a74bd"
_GPU_FILL, _GPU_LINE = "#e4f3dc", "#4c8f35"
_ILL_FILL = "#fbe6e4"
_FRAMES = {
    BoxKind.NUMA: ("#eef2f8", "#aebccd", 14),
    BoxKind.ROOT: ("#e1e8f2", "#93a5bd", 10),
    BoxKind.SWITCH: ("#fbfcfe", "#7f93ae", 8),
    BoxKind.CARD: ("#f4f0fa", "#a593c4", 8),
}
_HEADS = {BoxKind.ROOT: "host bridge ", BoxKind.SWITCH: "switch ", BoxKind.CARD: "card "}
_INSET = 10
_DISTANCES = (
    "Distance: PIX or PXB within a switch, PHB within a host bridge,",
    "NODE within a NUMA node, SYS between NUMA nodes.",
)
_LOOK = f' fill="{SOFT}"'


def draw_svg(scene: Scene) -> str:
    """The picture, as the text of an SVG file."""
    links = links_of(scene.topology)
    boxes = boxes_of(scene.topology)
    arrangement = arrange(boxes, _channel(boxes, links))
    cards = _cards(arrangement)
    curves = curves_of(links.pairs, cards, arrangement.channel_bottom - arrangement.channel_top)
    strengths = _strengths(curves)
    width = max(arrangement.width, LEAST_WIDTH) + 2 * MARGIN
    legend, height = _legend(scene, strengths, width - 2 * MARGIN)
    below = TITLE + arrangement.height + 22
    size = f'width="{width:.0f}" height="{below + height + MARGIN - 8:.0f}"'
    box = f'viewBox="0 0 {width:.0f} {below + height + MARGIN - 8:.0f}"'
    frames = (frame(each, each.what) for each in arrangement.rectangles if isinstance(each.what, Box))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{SANS}" fill="{INK}">',
        f"<title>{safe(_name(scene))}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_title(scene, width),
        f'<g transform="translate({MARGIN} {TITLE})">',
        *frames,
        *_plane(scene, links, arrangement, cards),
        *_lines(curves, strengths),
        *(part for place in scene.topology.places for part in card(cards[place.name], place, scene.caption(place))),
        "</g>",
        f'<g transform="translate({MARGIN} {below:.1f})">',
        *legend,
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _name(scene: Scene) -> str:
    return scene.node or "this node"


def _cards(arrangement: Arrangement) -> dict[str, Rectangle]:
    return {each.what.name: each for each in arrangement.rectangles if isinstance(each.what, Place)}


def _channel(boxes: tuple[Box, ...], links: Links) -> float:
    """The height that links need, before anything has its place."""
    if links.switched or links.mesh:
        return 108 if not links.pairs else 170
    if not links.pairs:
        return 22
    cards = _cards(arrange(boxes, 0))
    depth = deepest(links.pairs, cards)
    if not any(card.upward for card in cards.values()):
        return depth + 14
    crosses = any(cards[one.name].upward != cards[two.name].upward for one, two, _ in links.pairs)
    return max(2 * depth + 26, 150 if crosses else 60)


def _title(scene: Scene, width: float) -> list[str]:
    nodes = {place.numa_node for place in scene.topology.places} - {None}
    counts = [number(len(scene.gpus), "GPU"), number(len(scene.nics), "NIC")]
    if nodes:
        counts.append(number(len(nodes), "NUMA node"))
    if scene.topology.overridden:
        counts.append(f"{number(len(scene.topology.overridden), 'device')} placed by the override file")
    name = clipped(plain(_name(scene)), width - 2 * MARGIN, 22, bold=True)
    return [
        text(name, MARGIN, 36, 22, ' font-weight="bold"'),
        text(", ".join(counts), MARGIN, 58, 13, f' fill="{SOFT}"'),
    ]


def _plane(scene: Scene, links: Links, at: Arrangement, cards: dict[str, Rectangle]) -> list[str]:
    """A bar for NVLink switches, or for GPUs that are all linked alike, with a line to each GPU."""
    if not links.switched and not links.mesh:
        return []
    ends = [(cards[gpu.name], count) for gpu, count in links.switched or [(gpu, links.mesh) for gpu in scene.gpus]]
    left, right = min(end.x for end, _ in ends), max(end.x + end.width for end, _ in ends)
    two_rows = len({end.upward for end, _ in ends}) > 1
    middle = (at.channel_top + at.channel_bottom) / 2 if two_rows else at.channel_bottom - PLANE / 2 - 4
    counts = {count for _, count in ends}
    words = f"{scene.link_word} switches"
    if links.mesh:
        words = f"each GPU with each other: {scene.links_in_words(links.mesh)} a pair"
    elif len(counts) == 1:
        words += f", {scene.links_in_words(max(counts))} to each GPU"
    found = []
    for end, count in ends:
        edge = middle + (PLANE / 2 if end.upward else -PLANE / 2)
        path = f"M{end.middle:.1f} {end.edge:.1f}V{edge:.1f}"
        found.append(f'<path d="{path}" stroke="{STRENGTHS[0]}" stroke-width="4"/>')
        if len(counts) > 1:
            found.append(text(str(count), end.middle + 8, (end.edge + edge) / 2 + 5, 12, ' font-weight="bold"'))
    look = f'rx="8" fill="#d5ebc9" stroke="{STRENGTHS[0]}" stroke-width="1.5"'
    words = clipped(words, right - left - 20, 14, bold=True)
    return [
        *found,
        rectangle(left, middle - PLANE / 2, right - left, PLANE, look),
        text(words, (left + right) / 2, middle + 5, 14, ' font-weight="bold" text-anchor="middle"'),
    ]


def _strengths(curves: tuple[Curve, ...]) -> dict[int, tuple[str, float]]:
    """Colour and width of lines by number of links, most links first."""
    counts = sorted({curve.count for curve in curves}, reverse=True)
    last = len(STRENGTHS) - 1
    return {count: (STRENGTHS[min(rank, last)], max(4.5 - 1.8 * rank, 1.6)) for rank, count in enumerate(counts)}


def _lines(curves: tuple[Curve, ...], strengths: dict[int, tuple[str, float]]) -> list[str]:
    found = []
    for curve in sorted(curves, key=attrgetter("count")):
        colour, width = strengths[curve.count]
        found.append(f'<path d="{curve.path}" fill="none" stroke="{colour}" stroke-width="{width:.1f}"/>')
    return found


def text(words: str, x: float, y: float, size: float, more: str = "") -> str:
    """A line of text; ``more``: further attributes, which must not come from outside."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{more}>{safe(words)}</text>'


def safe(words: str) -> str:
    """A text as XML content."""
    return escape(plain(words), quote=True)


def rectangle(x: float, y: float, width: float, height: float, look: str) -> str:
    """A rectangle; ``look``: its attributes."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'


def dot(x: float, y: float, colour: str, filled: bool) -> str:
    """A dot, filled for a good state and hollow for a bad or unknown one, because not everybody sees colours."""
    fill = colour if filled else "#ffffff"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.6"/>'


def frame(at: Rectangle, box: Box) -> str:
    """A box with its head, at its outer edge."""
    fill, stroke, radius = _FRAMES[box.kind]
    look = f'rx="{radius}" fill="{fill}" stroke="{stroke}"'
    y = at.y + (at.height - 8 if at.upward else HEAD - 8)
    room = at.width - 2 * PADDING
    if box.kind is BoxKind.NUMA:
        words = clipped(f"NUMA node {box.name}" if box.name else "NUMA node unknown", room, 13, bold=True)
        head = text(words, at.x + PADDING, y, 13, ' font-weight="bold"')
    else:
        words = clipped(plain(_HEADS[box.kind] + box.name), room, 11)
        head = text(words, at.x + PADDING, y, 11, f' fill="{SOFT}"')
    return rectangle(at.x, at.y, at.width, at.height, look) + head


def card(at: Rectangle, place: Place, caption: Caption) -> list[str]:
    """A device: label and state, what it is, its address."""
    fill, stroke = (_GPU_FILL, _GPU_LINE) if place.gpu else (NIC_FILL, NIC_LINE)
    if place.gpu and caption.well is False:
        fill, stroke = _ILL_FILL, ILL
    dashed = ' stroke-dasharray="5 3"' if caption.host_use else ""
    look = f'rx="6" fill="{fill}" stroke="{stroke}" stroke-width="1.5"{dashed}'
    room = at.width - 2 * _INSET
    title, size = plain(caption.title), 12.0
    if width_of(title, size) > room:
        size = 11.0
    remark = f" · {caption.remark}" if caption.remark else ""
    third = clipped(plain((place.address or place.name) + remark), room, 11, mono=True)
    tooltip = ", ".join(words for words in (place.name, caption.title, caption.state, caption.host_use) if words)
    return [
        f'<g transform="translate({at.x:.1f} {at.y:.1f})"><title>{safe(tooltip)}</title>',
        rectangle(0, 0, at.width, at.height, look),
        text(place.label, _INSET, 20, 14, ' font-weight="bold"'),
        *_state(caption, at.width - _INSET, room - width_of(place.label, 14, bold=True) - 20),
        text(clipped(title, room, size), _INSET, 38, size),
        text(third, _INSET, 54, 11, f' font-family="{MONO}" fill="{SOFT}"'),
        "</g>",
    ]


def _state(caption: Caption, right: float, room: float) -> list[str]:
    state = clipped(plain(caption.state), room, 11)
    if not state:
        return []
    colour = {True: WELL, False: ILL, None: UNKNOWN}[caption.well]
    beside = right - width_of(state, 11) - 9
    return [text(state, right, 19, 11, ' text-anchor="end"'), dot(beside, 15, colour, bool(caption.well))]


def _legend(scene: Scene, strengths: Mapping[int, tuple[str, float]], room: float) -> tuple[list[str], float]:
    """The legend in lines no wider than ``room``, and its height; ``strengths``: colour and width by links."""
    found: list[str] = []
    x = y = 0.0
    for sample, wide, words in _entries(scene, strengths):
        width = wide + width_of(words, 12) + 16
        if x and x + width > room:
            x, y = 0.0, y + LEGEND_LINE
        found.append(_entry(x, y, sample, wide, words))
        x += width
    y += LEGEND_LINE if found else 0
    sentence = " ".join(_DISTANCES)
    for words in (sentence,) if width_of(sentence, 12) <= room else _DISTANCES:
        found.append(_entry(0, y, "", 0, words))
        y += LEGEND_LINE
    return found, y


def _entry(x: float, y: float, sample: str, wide: float, words: str) -> str:
    return f'<g transform="translate({x:.1f} {y + 8:.1f})">{sample}{text(words, wide, 4, 12, _LOOK)}</g>'


def _entries(scene: Scene, strengths: Mapping[int, tuple[str, float]]) -> list[tuple[str, float, str]]:
    """Each sign, the room it takes, and its meaning."""
    found: list[tuple[str, float, str]] = []
    nics = [scene.caption(nic) for nic in scene.nics]
    if any(nic.well for nic in nics):
        found.append((dot(5, 0, WELL, True), 15, "link up"))
    if any(nic.well is False for nic in nics):
        found.append((dot(5, 0, ILL, False), 15, "link down"))
    if any(scene.caption(place).host_use for place in scene.topology.places):
        look = f'rx="4" fill="{NIC_FILL}" stroke="{NIC_LINE}" stroke-width="1.5" stroke-dasharray="5 3"'
        found.append((f'<rect x="1" y="-7" width="24" height="14" {look}/>', 32, "used by the node itself"))
    for count, (colour, width) in strengths.items():
        line = f'<path d="M0 0H26" stroke="{colour}" stroke-width="{width:.1f}"/>'
        found.append((line, 32, scene.links_in_words(count)))
    return found
