"""Lines of text with colours, no wider than the terminal, and the words for names and values in them.

A line is pieces of text, each with an ink, behind an indent. A line that is too wide continues below, indented further,
and breaks at blanks only: a name or a quantity is never split. Text from the cluster is made printable here, so that no
other module has to. Of many names the first few are shown, and the number of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ostler.drawing.text import columns, plain
from scheduling.explain.obstacles import ClaimHolder, ReadValue, SelectorSource

MOST = 3
"""Names shown before the rest becomes a number."""


def some(names: Sequence[str], most: int = MOST) -> str:
    """``a, b, c … 5 more``; one more name than ``most`` is shown rather than counted."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} … {len(names) - most} more"


def joined(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return ", ".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def quoted(text: str) -> str:
    """In double quotes, as names of requests appear."""
    return f'"{text}"'


def holder(who: ClaimHolder) -> str:
    """The holder of a device."""
    if not who.claim:
        return "a claim that could not be read"
    if not who.pods:
        return f"claim {who.claim} (no pod uses it)"
    return f"claim {who.claim} ({'pod' if len(who.pods) == 1 else 'pods'} {some(who.pods, 2)})"


def source(where: SelectorSource) -> str:
    """The place of a selector; people count from 1."""
    name = where.name if where.kind == "class" else quoted(where.name)
    of = f" of claim {where.claim}" if where.claim else ""
    return f"{where.kind} {name}{of}, selector {where.index + 1}"


def values(read: Sequence[ReadValue]) -> str:
    """``model is "A100", memory is absent``: by the last part of each path, or all of it if two would look equal.

    A value that an expression reads as optional (``.?type``) becomes ``attribute type (optional)``.
    """
    short = [brief(each.path) for each in read]
    shown = short if len(set(short)) == len(short) else [each.path for each in read]
    shown = [_optional(path, each.path) for path, each in zip(shown, read, strict=True)]
    return ", ".join(
        f"{path} is {'absent' if each.value is None else each.value}" for path, each in zip(shown, read, strict=True)
    )


def _optional(shown: str, path: str) -> str:
    last = path.rsplit(".", 1)[-1] if not path.endswith("]") else path.rsplit("[", 1)[-1]
    if not last.startswith("?"):
        return shown
    kind = "capacity" if path.startswith("device.capacity") else "attribute"
    return f"{kind} {brief(path).lstrip('?')} (optional)"


def brief(path: str) -> str:
    """The last part of a path or qualified name: ``device.attributes["gpu.example.com"].model`` is ``model``."""
    if path.endswith("]") and "[" in path:
        return path.rsplit("[", 1)[1][:-1].lstrip("?").strip("\"'").rsplit("/", 1)[-1]
    return path.rsplit("/", 1)[-1] if "/" in path else path.rsplit(".", 1)[-1]


def taint(key: str, value: str, effect: str) -> str:
    """A taint as kubectl writes it: ``key=value:effect``."""
    return f"{key}{'=' if value else ''}{value}:{effect}"


GROUPS = 12
"""Groups of nodes that are shown unless all are asked for."""


def hidden_nodes(groups: int, misfits: int) -> list[Line]:
    """Lines about what is left out: ``groups`` beyond ``GROUPS``, and nodes on which it does not fit (``misfits``)."""
    lines = []
    if groups > 0:
        lines += [line(0), line(0, f"{groups} more groups of nodes; --all-nodes shows them")]
    if misfits:
        others = "1 other node does" if misfits == 1 else f"{misfits} other nodes do"
        lines += [line(0), line(0, f"{others} not fit; --all-nodes shows why")]
    return lines


INDENT = 2
HANGING = 4
"""Columns by which the continuation of a wide line is indented."""
NARROWEST = 40


class Ink(Enum):
    """Colours, by what a text is; the values are the terminal's codes."""

    PLAIN = ""
    GOOD = "32"
    BAD = "31"
    HEADING = "1"
    CODE = "36"
    VALUE = "33"
    FAINT = "2"


_Run = tuple[str, Ink]


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Some text in one ink; ``whole``: never broken, not even at blanks."""

    text: str
    ink: Ink = Ink.PLAIN
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """``depth``: how many steps it stands in."""

    depth: int
    pieces: tuple[TextPiece, ...] = ()


def line(depth: int, *pieces: TextPiece | str) -> Line:
    """A line; bare text is plain."""
    return Line(depth, tuple(TextPiece(piece) if isinstance(piece, str) else piece for piece in pieces))


def code(text: str) -> TextPiece:
    """Text as it appears in a manifest."""
    return TextPiece(" ".join(text.split()), Ink.CODE)


def value(text: str) -> TextPiece:
    """A device's own value."""
    return TextPiece(text, Ink.VALUE, whole=True)


def page(lines: Sequence[Line], width: int | None, *, colour: bool) -> str:
    """The text of all lines; ``width`` None: as wide as they are."""
    return "".join(f"{row}\n" for each in lines for row in _rows(each, width, colour))


def _rows(each: Line, width: int | None, colour: bool) -> Iterator[str]:
    start = used = each.depth * INDENT
    room = None if width is None else max(width, NARROWEST)
    row: list[_Run] = []
    for atom in _atoms(each.pieces):
        wide = sum(columns(text) for text, _ in atom)
        end = used + wide - (1 if atom[-1][0].endswith(" ") else 0)
        if row and room is not None and end > room:
            yield _painted(row, start, colour)
            row, start = [], each.depth * INDENT + HANGING
            used = start
        row += atom
        used += wide
    yield _painted(row, start, colour)


def _atoms(pieces: Sequence[TextPiece]) -> Iterator[list[_Run]]:
    """The text in parts that may begin a row: each ends with a blank, except the last."""
    atom: list[_Run] = []
    for piece in pieces:
        text = plain(piece.text)
        words = [text] if piece.whole else text.split(" ")
        for word in words[:-1]:
            yield [*atom, (f"{word} ", piece.ink)]
            atom = []
        if words[-1]:
            atom.append((words[-1], piece.ink))
    if atom:
        yield atom


def _painted(row: Sequence[_Run], indent: int, colour: bool) -> str:
    runs: list[_Run] = []
    for text, ink in row:
        if runs and runs[-1][1] is ink:
            runs[-1] = (runs[-1][0] + text, ink)
        else:
            runs.append((text, ink))
    if runs:
        runs[-1] = (runs[-1][0].rstrip(), runs[-1][1])
    drawn = "".join(
        text if not (colour and ink.value and text.strip()) else f"\x1b[{ink.value}m{text}\x1b[0m" for text, ink in runs
    )
    return (" " * indent + drawn).rstrip()
