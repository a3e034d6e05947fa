"""The lines of links through the channel of the drawing, as SVG path data.

Pure. Every line ends at a point of its own on its GPU's inner edge. Points are ordered so that lines of one GPU do not
cross: arcs to nearer GPUs lie inside of those to farther ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node.topology.model import Place
from node.values import Value, value
from ostler.drawing.arrangement import Rectangle

SPREAD = 16
"""Pixels between the ends of two lines."""


@value
class Curve(Value):
    """A line between two GPUs, and the number of links it stands for."""

    path: str
    count: int


def curves_of(
    pairs: Sequence[tuple[Place, Place, int]], cards: Mapping[str, Rectangle], channel: float
) -> tuple[Curve, ...]:
    """One curve a pair of GPUs, whose cards are given by name; ``channel`` is the height there is."""
    points = _points(pairs, cards)
    found = []
    for one, two, count in pairs:
        a, b = cards[one.name], cards[two.name]
        ends = points[one.name, two.name], points[two.name, one.name]
        if a.upward == b.upward:
            found.append(_arc(ends, a, count, channel))
        else:
            found.append(_crossing(ends, (a, b), count))
    return tuple(found)


def deepest(pairs: Sequence[tuple[Place, Place, int]], cards: Mapping[str, Rectangle]) -> float:
    """How deep arcs would go into a channel without a limit."""
    return max((_depth(abs(cards[one.name].middle - cards[two.name].middle)) for one, two, _ in pairs), default=0)


def _depth(distance: float) -> float:
    return 22 + 0.14 * distance


def _points(pairs: Sequence[tuple[Place, Place, int]], cards: Mapping[str, Rectangle]) -> dict[tuple[str, str], float]:
    """Where the line from a GPU (first) to another one (second) leaves its card."""
    peers: dict[str, list[str]] = {}
    for one, two, _ in pairs:
        peers.setdefault(one.name, []).append(two.name)
        peers.setdefault(two.name, []).append(one.name)
    found: dict[tuple[str, str], float] = {}
    for name, others in peers.items():
        own = cards[name]
        ordered = sorted(others, key=lambda other: _order(own, cards[other]))
        step = min(SPREAD, (own.width - 24) / max(len(ordered) - 1, 1))
        start = own.middle - step * (len(ordered) - 1) / 2
        found.update({(name, other): start + step * position for position, other in enumerate(ordered)})
    return found


def _order(own: Rectangle, other: Rectangle) -> tuple[int, float]:
    """From the left: arcs to the left, nearest first; lines across; arcs to the right, farthest first."""
    distance = other.middle - own.middle
    if own.upward != other.upward:
        return 1, distance
    return (0, -distance) if distance < 0 else (2, -distance)


def _arc(ends: tuple[float, float], card: Rectangle, count: int, channel: float) -> Curve:
    depth = min(_depth(abs(ends[0] - ends[1])), channel * 0.46)
    # A cubic curve goes three quarters of the way to its control points.
    reach = card.edge + (-depth if card.upward else depth) * 4 / 3
    return Curve(_cubic((ends[0], card.edge), (reach, reach), (ends[1], card.edge)), count)


def _crossing(ends: tuple[float, float], cards: tuple[Rectangle, Rectangle], count: int) -> Curve:
    start, end = cards[0].edge, cards[1].edge
    middle = (start + end) / 2
    return Curve(_cubic((ends[0], start), (middle, middle), (ends[1], end)), count)


def _cubic(start: tuple[float, float], heights: tuple[float, float], end: tuple[float, float]) -> str:
    """A cubic curve that leaves both ends vertically."""
    (x1, y1), (x2, y2) = start, end
    return f"M{x1:.1f} {y1:.1f}C{x1:.1f} {heights[0]:.1f} {x2:.1f} {heights[1]:.1f} {x2:.1f} {y2:.1f}"
