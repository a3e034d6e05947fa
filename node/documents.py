"""Reads JSON and TOML that others wrote, in bounded memory and time; ``node.yaml_text`` reads YAML.

Python's decoders end with an error at some depth, and know no aliases. So the values of a text are counted before they
are made, and their depth is checked afterwards, against the limits that the reader names.

Bytes are the business of whoever read them (``node.opening``). Every error is a ``DocumentRefused`` with a short text
of one line, since it goes into logs and messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from node.values import Value, value

GLIMPSE = 120
"""Characters of a foreign text that an error shows."""


@value
class DocumentLimits(Value):
    """What a document may have: levels of nesting, values in all, and values that aliases add to those written."""

    depth: int = 64
    values: int = 200_000
    aliased: int = 10_000


ORDINARY = DocumentLimits()


class DocumentRefused(ValueError):
    """The text is not valid, or beyond its limits. ``line``: where, from 1; 0 where that is not known."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(f"{problem} (line {line})" if line else problem)
        self.problem = problem
        self.line = line


def glimpse(text: str, most: int = GLIMPSE) -> str:
    """A foreign text as errors show it: at most ``most`` characters, one line, nothing that a terminal obeys."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut)


def described(value: object) -> str:
    """A foreign value as errors show it, however large it is; repr() writes out whatever aliases stand for."""
    if isinstance(value, str):
        return repr(value) if len(value) <= GLIMPSE else f"{value[:GLIMPSE]!r}..."
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return glimpse(repr(value)) if isinstance(value, bool | int | float | None) else f"a {type(value).__name__}"


def is_deeper(value: object, depth: int) -> bool:
    """Whether lists and mappings nest deeper than ``depth`` in a value without aliases; needs no recursion."""
    level = _collections([value])
    for _ in range(depth):
        level = [inner for outer in level for inner in _collections(_held(outer))]
    return bool(level)


def parse_json(text: bytes | str, limits: DocumentLimits = ORDINARY) -> Any:
    """The value of a JSON text; raises ``DocumentRefused``."""
    check_count(text, limits)
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise too_deep(limits) from error
    except ValueError as error:
        raise DocumentRefused(f"not valid JSON: {glimpse(str(error))}") from error
    if is_deeper(value, limits.depth):
        raise too_deep(limits)
    return value


def check_count(text: bytes | str, limits: DocumentLimits = ORDINARY, marks: str = ",]}") -> None:
    """Raise ``DocumentRefused`` for a text that may have more values than its limits.

    Three bytes of text can be a value of 72 bytes, so the ``marks`` that may end a value are counted before any value
    is made; those within strings, too, of which no document has that many.
    """
    count = sum(text.count(mark) if isinstance(text, str) else text.count(mark.encode()) for mark in marks)
    if count >= limits.values:
        raise DocumentRefused(f"more than {limits.values} values")


def parse_toml(text: bytes, limits: DocumentLimits = ORDINARY) -> dict[str, Any]:
    """The table of a TOML text; raises ``DocumentRefused``."""
    import tomllib  # Only for those who look at a container runtime.

    check_count(text, limits)
    try:
        value = tomllib.loads(text.decode())
    except RecursionError as error:
        raise too_deep(limits) from error
    except ValueError as error:
        raise DocumentRefused(f"not valid TOML: {glimpse(str(error))}") from error
    if is_deeper(value, limits.depth):
        raise too_deep(limits)
    return value


_Collection: TypeAlias = "dict[object, object] | list[object]"


def _collections(values: Iterable[object]) -> list[_Collection]:
    return [value for value in values if isinstance(value, dict | list)]


def _held(value: _Collection) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value


def too_deep(limits: DocumentLimits, line: int = 0) -> DocumentRefused:
    """The error for a text that nests deeper than its limits."""
    return DocumentRefused(f"nested deeper than {limits.depth} levels", line)
