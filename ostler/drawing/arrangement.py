"""The place of everything in the drawing: boxes and cards as rectangles, links as curves; in pixels.

Pure. NUMA nodes stand in two rows with a channel between them, and every GPU at its row's inner edge, so that links run
through the channel and cross no card. With GPUs in one NUMA node alone there is one row, and the channel below it. NICs
stand at the outer side of the GPUs whose switch they share, or in columns beside.

Every line of a link ends at a point of its own on its GPU's inner edge. Points are ordered so that lines of one GPU do
not cross: arcs to nearer GPUs lie inside of those to farther ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from node.topology.model import Place
from node.values import Value, replace, value
from ostler.drawing.scene import Box, BoxKind

CARD_WIDTH = 170
CARD_HEIGHT = 64
GAP = 10
PADDING = 12
HEAD = 24
MOST_IN_COLUMN = 4
"""NICs above each other where no GPU sets the height."""
MANY_GPUS = 4
"""As many GPUs without a switch of their own leave no room beside them: NICs then stand behind, at some distance."""
MAX_WIDTH = 1500
"""Of a row without GPUs; with GPUs a row is as wide as it has to be."""
SPREAD = 16
"""Pixels between the ends of two lines."""


@value
class Rectangle(Value):
    """A box or card at its place; ``upward``: its inner edge is the upper one."""

    what: Box | Place
    x: float
    y: float
    width: float
    height: float
    upward: bool = False

    @property
    def middle(self) -> float:
        """Its middle, from the left."""
        return self.x + self.width / 2

    @property
    def edge(self) -> float:
        """The height of its inner edge, where links end."""
        return self.y if self.upward else self.y + self.height


@value
class Block(Value):
    """Rectangles with the room they take, boxes before what is in them."""

    width: float
    height: float
    rectangles: tuple[Rectangle, ...]


@value
class Arrangement(Value):
    """The whole picture between title and legend; the channel lies between ``channel_top`` and ``channel_bottom``."""

    width: float
    height: float
    rectangles: tuple[Rectangle, ...]
    channel_top: float
    channel_bottom: float


def arrange(boxes: Sequence[Box], channel: float) -> Arrangement:
    """The boxes in one row or two with a channel of this height; without GPUs, in rows that wrap."""
    with_gpus = [box for box in boxes if _gpus(box)]
    others = [box for box in boxes if not _gpus(box)]
    if not with_gpus:
        return _wrapped([_block(box, False) for box in boxes])
    if len(with_gpus) == 1:
        row = _row([_block(box, False) for box in (*with_gpus, *others)])
        return Arrangement(row.width, row.height + channel, row.rectangles, row.height, row.height + channel)
    upper, lower = _rows(with_gpus, others)
    top, bottom = upper.height, upper.height + channel
    below = _moved(_flipped(lower), 0, bottom)
    width = max(upper.width, lower.width)
    return Arrangement(width, bottom + lower.height, (*upper.rectangles, *below), top, bottom)


def _rows(with_gpus: list[Box], others: list[Box]) -> tuple[Block, Block]:
    """Two rows: NUMA nodes with GPUs in halves, in their order; others where there is more room."""
    half = (len(with_gpus) + 1) // 2
    upper = [_block(box, False) for box in with_gpus[:half]]
    lower = [_block(box, True) for box in with_gpus[half:]]
    for box in others:
        up, down = _row(upper), _row(lower)
        if down.width < up.width:
            lower.append(_block(box, True))
        else:
            upper.append(_block(box, False))
    return _row(upper), _row(lower)


def _gpus(member: Box | Place) -> bool:
    return member.gpu if isinstance(member, Place) else any(place.gpu for place in member.places())


def _block(member: Box | Place, upward: bool) -> Block:
    """A member with GPUs at the lower edge; ``upward``: it will be turned upside down, and must be readable then."""
    if isinstance(member, Place):
        return Block(CARD_WIDTH, CARD_HEIGHT, (Rectangle(member, 0, 0, CARD_WIDTH, CARD_HEIGHT),))
    inner = _content(member, upward)
    width, height = inner.width + 2 * PADDING, inner.height + HEAD + PADDING
    frame = Rectangle(member, 0, 0, width, height)
    return Block(width, height, (frame, *_moved(inner.rectangles, PADDING, HEAD)))


def _content(box: Box, upward: bool) -> Block:
    """The content of a box: GPUs at the lower edge."""
    front = [_block(member, upward) for member in box.members if _gpus(member)]
    others = [_block(member, upward) for member in box.members if not _gpus(member)]
    cards = all(isinstance(member, Place) for member in box.members)
    shared = box.kind in (BoxKind.SWITCH, BoxKind.CARD)
    if cards and len(front) >= (1 if shared else MANY_GPUS):
        across = -(-len(others) // -(-len(others) // len(front))) if others else 1
        rows = [_row(others[start : start + across]) for start in range(0, len(others), across)]
        behind = _stacked(rows[::-1] if upward else rows)
        return _stacked([behind, _row(front)], GAP if shared else 3 * GAP) if rows else _row(front)
    room = max((block.height for block in front), default=0)
    return _row([*front, *_columns(others, room, upward)])


def _columns(blocks: list[Block], room: float, upward: bool) -> list[Block]:
    """Blocks above each other, in columns no higher than ``room`` (0: some cards), filled from the left."""
    limit = max(room, 2 * CARD_HEIGHT + GAP) if room else MOST_IN_COLUMN * (CARD_HEIGHT + GAP)
    columns = _filled(blocks, [block.height for block in blocks], limit)
    return [_stacked(column[::-1] if upward else column) for column in columns]


def _filled(blocks: Sequence[Block], lengths: Sequence[float], limit: float) -> list[list[Block]]:
    """The blocks in lines no longer than ``limit``, each line filled before the next begins."""
    lines: list[list[Block]] = []
    used = 0.0
    for block, length in zip(blocks, lengths, strict=True):
        if lines and used + length <= limit:
            lines[-1].append(block)
            used += length + GAP
        else:
            lines.append([block])
            used = length + GAP
    return lines


def _row(blocks: Sequence[Block]) -> Block:
    """Blocks beside each other, their lower edges in a line."""
    height = max((block.height for block in blocks), default=0)
    x = 0.0
    found: list[Rectangle] = []
    for block in blocks:
        found += _moved(block.rectangles, x, height - block.height)
        x += block.width + GAP
    return Block(max(x - GAP, 0), height, tuple(found))


def _stacked(blocks: Sequence[Block], gap: float = GAP) -> Block:
    width = max((block.width for block in blocks), default=0)
    y = 0.0
    found: list[Rectangle] = []
    for block in blocks:
        found += _moved(block.rectangles, (width - block.width) / 2, y)
        y += block.height + gap
    return Block(width, max(y - gap, 0), tuple(found))


def _wrapped(blocks: list[Block]) -> Arrangement:
    whole = _stacked([_row(row) for row in _filled(blocks, [block.width for block in blocks], MAX_WIDTH)])
    return Arrangement(whole.width, whole.height, whole.rectangles, whole.height, whole.height)


def _moved(rectangles: Iterable[Rectangle], x: float, y: float) -> tuple[Rectangle, ...]:
    return tuple(replace(each, x=each.x + x, y=each.y + y) for each in rectangles)


def _flipped(block: Block) -> tuple[Rectangle, ...]:
    """The block upside down: what was at the lower edge is at the upper one."""
    return tuple(replace(each, y=block.height - each.y - each.height, upward=True) for each in block.rectangles)


@value
class Curve(Value):
    """A line between two GPUs, and the number of links it stands for."""

    path: str
    count: int


def curves_of(
    pairs: Sequence[tuple[Place, Place, int]], cards: Mapping[str, Rectangle], channel: float
) -> tuple[Curve, ...]:
    """One curve a pair of GPUs, whose cards are given by name; ``channel`` is the height there is."""
    points = _line_ends(pairs, cards)
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


def _line_ends(
    pairs: Sequence[tuple[Place, Place, int]], cards: Mapping[str, Rectangle]
) -> dict[tuple[str, str], float]:
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
