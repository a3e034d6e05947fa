"""Pictures of cells: as text, one line for each node, and as one SVG file that stands alone.

A letter stands for a group, ``.`` for a free GPU, ``!`` for a bad one. Colour alone never carries information. Every
text from outside is made printable and escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import cycle

from ostler.cells.placed import CellUser, PlacedCells, UsedCell, UsedLeaf, nodes_of, users_of
from ostler.drawing.svg import INK, SANS, SOFT
from ostler.drawing.text import clipped, plain, width_of

FREE, BAD = ".", "!"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BETWEEN = ("", " ", " | ", " || ", " ||| ")
"""Between cells whose children are GPUs, cells of those, and so on."""
_COLOURS = ("#cfe3f7", "#d9eccb", "#f7e3c6", "#e6d9f2", "#f6d5d5", "#cdeceb", "#eadfc9", "#dcdfe6")
_LEAF, _GAP, _PAD, _LEFT, _LINE = 26, 3, 5, 24, 20
_WIDEST = 900
"""Pixels of a text in the picture."""


def lettered(placed: PlacedCells) -> dict[CellUser, str]:
    """A letter for each group, in the order of its first GPU; letters begin anew after the last."""
    return dict(zip(users_of(placed.tops), cycle(_LETTERS), strict=False))


def text_picture(placed: PlacedCells) -> Iterator[str]:
    """The lines of the picture."""
    letters = lettered(placed)
    every = [leaf for top in placed.tops for leaf in top.leaves()]
    bad = [leaf for leaf in every if leaf.bad]
    used = sum(leaf.user is not None for leaf in every)
    free = sum(top.free for top in placed.tops)
    yield f"{len(every)} GPUs in {len(placed.tops)} cells: {free} free, {used} used, {len(bad)} bad"
    width = max((len(node.name) for top in placed.tops for node in nodes_of(top)), default=0)
    kind = ""
    for top in placed.tops:
        if top.cell_type != kind or not top.is_node:
            kind = top.cell_type
            yield ""
            yield f"{kind}{'' if top.is_node else f' {top.address}: {top.free} free'}"
        for node in nodes_of(top):
            pin = f", pinned as {node.pinned}" if node.pinned else ""
            count = len(list(node.leaves()))
            yield f"  {node.name.ljust(width)}  [{_bar(node, letters)}]  {node.free} of {count} free{pin}"
    yield from _legend(placed, letters)


def _legend(placed: PlacedCells, letters: Mapping[CellUser, str]) -> Iterator[str]:
    counts = users_of(placed.tops)
    bad = [
        f"GPU {leaf.index} of node {node.name}: {leaf.bad}"
        for top in placed.tops
        for node in nodes_of(top)
        for leaf in node.leaves()
        if leaf.bad
    ]
    if counts or bad:
        yield ""
    for user, letter in letters.items():
        yield f"{letter}  {user}: {counts[user]} GPU{'' if counts[user] == 1 else 's'}"
    for sentence in bad:
        yield f"{BAD}  {sentence}"
    if placed.broken:
        yield ""
        yield f"broken islands: {len(placed.broken)}"
        yield from (f"  {each}" for each in placed.broken)
    for sentence in placed.unknown:
        yield sentence


def _bar(cell: UsedCell, letters: Mapping[CellUser, str]) -> str:
    if cell.leaf is not None:
        return _sign(cell.leaf, letters)
    between = _BETWEEN[min(_height(cell) - 1, len(_BETWEEN) - 1)]
    return between.join(_bar(child, letters) for child in cell.children)


def _sign(leaf: UsedLeaf, letters: Mapping[CellUser, str]) -> str:
    if leaf.bad:
        return BAD
    return FREE if leaf.user is None else letters[leaf.user]


def _height(cell: UsedCell) -> int:
    return 0 if cell.leaf is not None else 1 + _height(cell.children[0])


class _Svg:
    """Collects the shapes of a picture, and how wide it is."""

    def __init__(self, letters: Mapping[CellUser, str]) -> None:
        self._letters = letters
        self._colours = dict(zip(letters, cycle(_COLOURS), strict=False))
        self.shapes: list[str] = []
        self.width = 0.0

    def text(self, x: float, y: float, text: str, *, size: int = 13, look: str = "", fill: str = INK) -> None:
        """Write one line."""
        shown = clipped(plain(text), _WIDEST, size)
        self.shapes.append(
            f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}"{look}>{escape(shown)}</text>'
        )
        self.width = max(self.width, x + width_of(shown, size))

    def cell(self, cell: UsedCell, x: float, y: float) -> tuple[float, float]:
        """Draw a cell; its width and height."""
        if cell.leaf is not None:
            self._leaf(cell.leaf, x, y)
            return _LEAF, _LEAF
        place = len(self.shapes)
        right, tallest = x + _PAD, 0.0
        for child in cell.children:
            wide, tall = self.cell(child, right, y + _PAD)
            right, tallest = right + wide + _GAP, max(tallest, tall)
        width, height = right - _GAP + _PAD - x, tallest + 2 * _PAD
        line = 'stroke="#5b6773"' if cell.is_node else 'stroke="#aebccd"'
        self.shapes.insert(
            place,
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5" fill="#ffffff"'
            f' fill-opacity="0.6" {line}><title>{escape(plain(f"{cell.cell_type} {cell.address}"))}</title></rect>',
        )
        self.width = max(self.width, x + width)
        return width, height

    def _leaf(self, leaf: UsedLeaf, x: float, y: float) -> None:
        fill = "#f9fafb" if leaf.user is None else self._colours[leaf.user]
        line = ' stroke="#c22525" stroke-width="2"' if leaf.bad else ' stroke="#93a5bd"'
        why = leaf.bad or ("free" if leaf.user is None else str(leaf.user))
        self.shapes.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_LEAF}" height="{_LEAF}" rx="4" fill="{fill}"{line}>'
            f"<title>{escape(plain(f'GPU {leaf.index}: {why}'))}</title></rect>"
        )
        sign = "" if leaf.user is None and not leaf.bad else _sign(leaf, self._letters)
        middle = ' text-anchor="middle"'
        if sign:
            self.text(x + _LEAF / 2, y + _LEAF / 2 + 5, sign, size=14, look=f'{middle} font-weight="bold"')
        else:
            self.text(x + _LEAF / 2, y + _LEAF / 2 + 4, str(leaf.index), size=10, look=middle, fill=SOFT)

    def key(self, user: CellUser, y: float) -> None:
        """The colour and letter of a group in the legend."""
        self.shapes.append(
            f'<rect x="{_LEFT}" y="{y - 13:.0f}" width="18" height="18" rx="4" fill="{self._colours[user]}"'
            ' stroke="#93a5bd"/>'
        )
        self.text(_LEFT + 9, y, self._letters[user], look=' text-anchor="middle" font-weight="bold"')


def svg_picture(placed: PlacedCells, title: str) -> str:
    """The picture, as the text of an SVG file."""
    letters = lettered(placed)
    drawn = _Svg(letters)
    lines = list(text_picture(placed))
    drawn.text(_LEFT, 34, title, size=20, look=' font-weight="bold"')
    drawn.text(_LEFT, 56, lines[0], fill=SOFT)
    y = 80.0
    for top in placed.tops:
        name = top.name if top.is_node else f"{top.address} ({top.cell_type})"
        drawn.text(_LEFT, y, f"{name}: {top.free} of {len(list(top.leaves()))} free")
        for row in _rows(top):
            _, tall = drawn.cell(row, _LEFT, y + 6)
            y += tall + 12
        y += 18
    counts = users_of(placed.tops)
    for user in letters:
        drawn.key(user, y + 6)
        drawn.text(_LEFT + 28, y + 6, f"{user}: {counts[user]} GPUs")
        y += _LINE + 4
    for sentence in _after(lines, letters):
        drawn.text(_LEFT, y + 6, sentence, fill=SOFT)
        y += _LINE
    width, height = drawn.width + _LEFT, y + 16
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{SANS}" role="img">',
        f"<title>{escape(plain(title))}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#f4f6fa"/>',
        *drawn.shapes,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rows(top: UsedCell) -> Sequence[UsedCell]:
    """A top cell above nodes takes one row for each child, so that no picture is wider than a few nodes."""
    return (top,) if top.is_node or len(list(top.leaves())) <= 2 * 16 else top.children


def _after(lines: Sequence[str], letters: Mapping[CellUser, str]) -> list[str]:
    """The sentences of the legend that are about no group."""
    return [
        line
        for line in lines
        if line.startswith((f"{BAD}  ", "broken islands", "pod ")) or (line.startswith("  pod ") and letters)
    ]


def document(placed: PlacedCells) -> dict[str, object]:
    """The same as plain data."""

    def cell(each: UsedCell) -> dict[str, object]:
        found: dict[str, object] = {"cellType": each.cell_type, "address": each.address}
        if each.leaf is not None:
            leaf = each.leaf
            found["gpu"] = leaf.index
            if leaf.user is not None:
                user = leaf.user
                found["user"] = {
                    "group": user.group,
                    "virtualCluster": user.virtual_cluster,
                    "priority": user.priority,
                }
            if leaf.bad:
                found["bad"] = leaf.bad
        else:
            found["free"] = each.free
            found["children"] = [cell(child) for child in each.children]
        return found

    return {
        "cells": [cell(top) for top in placed.tops],
        "broken": [
            {
                "pod": each.pod,
                "node": each.node,
                "gpus": list(each.indices),
                "cell": each.cell_size,
                "needed": each.needed,
            }
            for each in placed.broken
        ],
        "unknown": list(placed.unknown),
    }
