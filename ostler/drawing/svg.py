"""A picture of the node: NUMA nodes, switches, GPUs, NICs and the links between GPUs, as one SVG file.

The file stands alone: no fonts, scripts or pictures from elsewhere, and every text in it is escaped. Nothing is told by
colour alone.
"""

from __future__ import annotations

from node.topology.model import Place
from ostler.drawing.arrangement import Arrangement, Rectangle, arrange
from ostler.drawing.curves import Curve, curves_of, deepest
from ostler.drawing.legend import draw_legend
from ostler.drawing.parts import INK, SANS, SOFT, card, frame, rectangle, safe, text
from ostler.drawing.scene import Box, Links, Scene, boxes_of, links_of
from ostler.drawing.text import clipped, plain

MARGIN = 28
TITLE = 74
PLANE = 34
LEAST_WIDTH = 600

STRENGTHS = ("#2e7d1f", "#7a52c7", "#b86e00", "#5b6773")
"""Colours of links, from the pairs with most links to those with fewest."""


def draw_svg(scene: Scene) -> str:
    """The picture, as the text of an SVG file."""
    links = links_of(scene.topology)
    boxes = boxes_of(scene.topology)
    arrangement = arrange(boxes, _channel(boxes, links))
    cards = _cards(arrangement)
    curves = curves_of(links.pairs, cards, arrangement.channel_bottom - arrangement.channel_top)
    strengths = _strengths(curves)
    width = max(arrangement.width, LEAST_WIDTH) + 2 * MARGIN
    legend = draw_legend(scene, strengths, width - 2 * MARGIN)
    below = TITLE + arrangement.height + 22
    size = f'width="{width:.0f}" height="{below + legend.height + MARGIN - 8:.0f}"'
    box = f'viewBox="0 0 {width:.0f} {below + legend.height + MARGIN - 8:.0f}"'
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
        *legend.parts,
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
    counts = [_counted(len(scene.gpus), "GPU"), _counted(len(scene.nics), "NIC")]
    if nodes:
        counts.append(_counted(len(nodes), "NUMA node"))
    if scene.topology.overridden:
        counts.append(f"{_counted(len(scene.topology.overridden), 'device')} placed by the override file")
    name = clipped(plain(_name(scene)), width - 2 * MARGIN, 22, bold=True)
    return [
        text(name, MARGIN, 36, 22, ' font-weight="bold"'),
        text(", ".join(counts), MARGIN, 58, 13, f' fill="{SOFT}"'),
    ]


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


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
    for curve in sorted(curves, key=lambda curve: curve.count):
        colour, width = strengths[curve.count]
        found.append(f'<path d="{curve.path}" fill="none" stroke="{colour}" stroke-width="{width:.1f}"/>')
    return found
