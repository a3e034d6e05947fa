"""What the signs of the drawing mean; only signs that the picture has."""

from __future__ import annotations

from collections.abc import Mapping

from node.values import Value, value
from ostler.drawing.parts import ILL, NIC_FILL, NIC_LINE, SOFT, WELL, dot, text
from ostler.drawing.scene import Scene
from ostler.drawing.text import width_of

LINE = 24
_DISTANCES = (
    "Distance: PIX or PXB within a switch, PHB within a host bridge,",
    "NODE within a NUMA node, SYS between NUMA nodes.",
)


@value
class Legend(Value):
    """The legend as SVG from its upper left corner, and the height it takes."""

    parts: tuple[str, ...]
    height: float


def draw_legend(scene: Scene, strengths: Mapping[int, tuple[str, float]], room: float) -> Legend:
    """The legend in lines no wider than ``room``; ``strengths``: colour and width of lines by number of links."""
    found: list[str] = []
    x = y = 0.0
    for sample, wide, words in _entries(scene, strengths):
        width = wide + width_of(words, 12) + 16
        if x and x + width > room:
            x, y = 0.0, y + LINE
        found.append(_entry(x, y, sample, wide, words))
        x += width
    y += LINE if found else 0
    sentence = " ".join(_DISTANCES)
    for words in (sentence,) if width_of(sentence, 12) <= room else _DISTANCES:
        found.append(_entry(0, y, "", 0, words))
        y += LINE
    return Legend(tuple(found), y)


def _entry(x: float, y: float, sample: str, wide: float, words: str) -> str:
    return f'<g transform="translate({x:.1f} {y + 8:.1f})">{sample}{text(words, wide, 4, 12, _LOOK)}</g>'


_LOOK = f' fill="{SOFT}"'


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
