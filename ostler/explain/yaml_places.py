"""YAML without a loader: what kubectl makes of a scalar without quotes, and the line on which something stands.

Scalars follow YAML 1.1's words for true and false, octal numbers with and without an o, no numbers of base 60 and no
dates.

Lines are found for messages alone, by another reading of the text. Objects do not remember their lines: for ten
thousand devices that would be most of the memory, and nobody asks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kube.bodies import Json, one_line
from node.yaml_text import events

if TYPE_CHECKING:
    import yaml


_GLIMPSE = 60
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NUMBER_BEGINS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"x": 16, "o": 8, "b": 2}
FieldPath = tuple[str | int, ...]
"""Keys and places in lists, from a document's top."""


def line_at(event: yaml.Event) -> int:
    """The line where an event begins, from 1; 0 where it has none."""
    return event.start_mark.line + 1 if event.start_mark else 0


def line_of(data: bytes, number: int, path: FieldPath) -> int:
    """The line of what ``path`` names in a document, or of the nearest thing above it; 0 where YAML cannot tell.

    Only for messages: it reads the text once more. JSON is found as well, being YAML.
    """
    import yaml

    try:
        return _Finder(number, path).line(events(data.decode("utf-8-sig")))
    except (yaml.YAMLError, UnicodeDecodeError):
        return 0


class _Finder:
    """Follows a path through the events of one document."""

    def __init__(self, number: int, path: Sequence[str | int]) -> None:
        self._number = number
        self._path = path

    def line(self, stream: Iterator[yaml.Event]) -> int:
        import yaml

        stack: list[list[str | int | None]] = []
        document, best, found = -1, 0, 0
        for event in stream:
            if isinstance(event, yaml.DocumentStartEvent):
                document += 1
            if document > self._number:
                break
            if document < self._number or not isinstance(event, (yaml.NodeEvent, yaml.CollectionEndEvent)):
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                if found and len(stack) == best:
                    break  # The end of the deepest thing on the path: what is below it is not there.
                self._step(stack)
                continue
            is_key = bool(stack) and stack[-1][0] is None
            if is_key:
                stack[-1][0] = getattr(event, "value", "")
            here = [top[0] for top in stack]
            if len(here) >= best and here == list(self._path[: len(here)]) and (len(here) > best or not found):
                best, found = len(here), line_at(event)
                if best == len(self._path):
                    break
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append([0 if isinstance(event, yaml.SequenceStartEvent) else None])
            elif not is_key:
                self._step(stack)
        return found

    @staticmethod
    def _step(stack: list[list[str | int | None]]) -> None:
        """After a value: the next place of a list, or the next key."""
        if stack:
            top = stack[-1]
            top[0] = top[0] + 1 if isinstance(top[0], int) else None


def plain_value(text: str) -> Json:
    """What a scalar without quotes is for kubectl; raises ValueError for numbers that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    bare = text.replace("_", "")
    if _INTEGER.fullmatch(bare) and len(bare) < 400:
        return _integer(bare)
    if _FLOAT.fullmatch(bare):
        number = float(bare)
        if not math.isfinite(number):
            raise ValueError(f"the number {one_line(text, _GLIMPSE)} is too large")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is not a number that the API accepts")
    return text


def _integer(text: str) -> int | float:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-").lower()
    if len(digits) > 1 and digits[0] == "0":
        base = _BASES.get(digits[1])
        value = sign * (int(digits[2:], base) if base else int(digits, 8))
    else:
        value = sign * int(digits)
    return value if -(1 << 63) <= value < 1 << 64 else float(value)
