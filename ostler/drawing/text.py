"""Texts of devices made fit for a picture: interface names may hold anything but a slash."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_NARROW = frozenset("ilIjtfr.,:;'|!()[]- ")
_WIDE = frozenset("mwMWGOQ@%<>=+~#&")


def plain(text: str) -> str:
    """The text on one line, with escapes for what no terminal and no XML file should get."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def number(count: int | str, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def columns(text: str) -> int:
    """Columns that a terminal gives the text."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int) -> str:
    """The text with blanks up to ``width`` columns."""
    return text + " " * (width - columns(text))


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of as many cells, in columns as wide as their content; control characters become escapes."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(padded, row, widths)).rstrip() for row in cells]


def width_of(text: str, size: float, *, mono: bool = False, bold: bool = False) -> float:
    """About how wide a text of this font size is drawn, in pixels; rather too wide than too narrow."""
    ems = sum(_ems(character, mono) for character in text)
    return ems * size * (1.06 if bold else 1.0)


def _ems(character: str, mono: bool) -> float:
    if _columns(character) == 2:
        return 1.05
    if mono:
        return 0.61
    if character in _NARROW:
        return 0.38
    if character in _WIDE:
        return 0.9
    return 0.75 if character.isupper() else 0.635


def clipped(text: str, room: float, size: float, *, mono: bool = False, bold: bool = False) -> str:
    """As much of the text as fits into ``room`` pixels, with … at the end where some is left out."""
    if width_of(text, size, mono=mono, bold=bold) <= room:
        return text
    kept = text
    while kept and width_of(kept + "…", size, mono=mono, bold=bold) > room:
        kept = kept[:-1]
    return kept.rstrip() + "…" if kept else ""
