"""Pieces of the drawing as SVG: frames, cards, dots. Every text from outside is made plain and escaped here."""

from __future__ import annotations

from html import escape

from node.topology.model import Place
from ostler.drawing.arrangement import HEAD, PADDING, Rectangle
from ostler.drawing.scene import Box, BoxKind, Caption
from ostler.drawing.text import clipped, plain, width_of

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
    """Filled for well, hollow for ill or unknown: colour alone tells nobody."""
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
