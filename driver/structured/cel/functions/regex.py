"""Regular expressions, in RE2's syntax and linear time: Python's own could run for ages on a hostile pattern.

The library google-re2 is an optional extra and loaded with the first pattern that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

from driver.structured.cel.functions.registry import Overload
from driver.structured.cel.types import DYN, INT, STRING
from driver.structured.cel.values import (
    Call,
    Fault,
    Optional,
    Stop,
    TooExpensive,
    TypeValue,
    Value,
    no_such_overload,
    utf8,
)

_MEMORY = 64 * 2**20
"""What RE2 may use for one pattern, in bytes: large repetitions that Go compiles must compile here too."""
_SCANNED = 4 * 10**8
"""Bytes that one findAll may go through in all."""


class Pattern(Protocol):
    """A compiled pattern of google-re2, on UTF-8."""

    def search(self, text: bytes, pos: int = ...) -> Match | None:
        """The leftmost match from a position on."""
        ...


class Match(Protocol):
    """Where a pattern matched."""

    def span(self) -> tuple[int, int]:
        """Start and end, in bytes."""
        ...


class MissingLibrary(Stop):
    """google-re2 is not installed."""

    def __init__(self) -> None:
        super().__init__("regular expressions need the library google-re2: pip install 'ostler[explain]'")


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """The compiled pattern. Raises Fault when it is none, MissingLibrary without google-re2."""
    try:
        import re2  # type: ignore[import-untyped]  # an optional extra, and few expressions need it
    except ImportError:
        raise MissingLibrary from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        compiled: Pattern = re2.compile(utf8(text), options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise Fault(f"error parsing regexp: {shown}") from None
    return compiled


def _strings(name: str, text: Value, expression: Value) -> tuple[bytes, Pattern]:
    text = _text_behind(text)
    if type(text) is not str or type(expression) is not str:
        raise no_such_overload(name, text, expression)
    return utf8(text), pattern(expression)


def _text_behind(value: Value) -> Value:
    """What cel-go takes for the text where the pattern is constant: it looks into optionals and at names of types."""
    while type(value) is Optional and value.present:
        value = value.get()
    return value.name if type(value) is TypeValue else value


def _matches(text: Value, expression: Value) -> Value:
    data, compiled = _strings("matches", text, expression)
    return compiled.search(data) is not None


def _strict_matches(text: Value, expression: Value) -> Value:
    if type(text) is not str:
        raise no_such_overload("matches", text, expression)
    return _matches(text, expression)


def _find(text: Value, expression: Value) -> Value:
    data, compiled = _strings("find", text, expression)
    found = compiled.search(data)
    return "" if found is None else _piece(data, *found.span())


def _piece(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode("utf-8", "surrogatepass")


def _find_all(text: Value, expression: Value, limit: Value = -1) -> Value:
    """All matches as Go finds them: an empty match right behind the one before does not count."""
    data, compiled = _strings("findAll", text, expression)
    if type(limit) is not int:
        raise no_such_overload("findAll", text, expression, limit)
    found: list[Value] = []
    position, before, scanned = 0, -1, 0
    while position <= len(data) and len(found) != limit:
        match = compiled.search(data, position)
        if match is None:
            break
        start, end = match.span()
        counts = end > start or start != before
        scanned += len(data) - position
        if scanned > _SCANNED:
            raise TooExpensive
        position = end if end > position else position + _width(data, position)
        before = end
        if counts:
            found.append(_piece(data, start, end))
    return found


def _width(data: bytes, position: int) -> int:
    """Bytes of the character at a position; 1 at the end."""
    if position >= len(data):
        return 1
    lead = data[position]
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


OVERLOADS = (
    Overload("matches", "matches", (DYN, DYN), _strict_matches, singleton=True),
    Overload("matches_string", "matches", (DYN, DYN), _strict_matches, singleton=True),
    Overload("string_find_string", "find", (STRING, STRING), _find),
    Overload("string_find_all_string", "findAll", (STRING, STRING), _find_all),
    Overload("string_find_all_string_int", "findAll", (STRING, STRING, INT), _find_all, variadic=True),
)
WITH_CONSTANT_PATTERN: Mapping[str, Call] = {"matches": _matches, "find": _find, "findAll": _find_all}
"""Functions whose second argument is compiled beforehand when it is a constant: then the call is variadic, and these
implementations answer, whatever the types of the arguments.
"""
