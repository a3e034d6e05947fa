"""The library of regular expressions: the specification's `matches`, and Kubernetes' `find` and `findAll`.

They are in RE2's syntax and run in linear time: Python's own could run for ages on a hostile pattern. google-re2 is an
optional extra and is loaded with the first pattern that is needed. Linear is not enough: a pattern of forty characters
may become millions of instructions, so compiling and searching are counted as work (see `values.spend`). Unlike
Kubernetes, a pattern beyond `LONGEST` characters or `_MEMORY` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Protocol

from scheduling.cel.library.function import Library, function, method
from scheduling.cel.library.prices import ONE, REGEX, TEXT, CallEstimate, CallOperand, CostRange, Price
from scheduling.cel.types import BOOL, INT, STRING, list_of
from scheduling.cel.values import (
    CelFault,
    Function,
    Optional,
    Stop,
    TooExpensive,
    TypeValue,
    Value,
    no_such_overload,
    size_of,
    spend,
    utf8,
)

LONGEST = 8192
"""Characters of a pattern: RE2 takes about a second for the worst of them, four times that for twice the length."""
_MEMORY = 16 * 2**20
"""Bytes that RE2 may use for one pattern."""
_LARGEST = _MEMORY // 16
"""Instructions of the largest program that fits into it."""


class _Library(Protocol):
    """A pattern as google-re2 compiles it."""

    programsize: int

    def search(self, text: bytes, pos: int) -> _Match | None:
        """The leftmost match from a position on."""


class _Match(Protocol):
    """Where a pattern matched."""

    def span(self) -> tuple[int, int]:
        """Start and end, in bytes."""


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A compiled pattern, on UTF-8. `size`: instructions of its program."""

    compiled: _Library
    size: int

    def search(self, data: bytes, start: int = 0) -> tuple[int, int] | None:
        """Start and end of the leftmost match from a position on. Raises TooExpensive."""
        spend((len(data) - start) * self.size >> 9)  # every byte may visit every instruction
        found = self.compiled.search(data, start)
        return None if found is None else found.span()


class MissingLibrary(Stop):
    """google-re2 is not installed."""

    def __init__(self) -> None:
        super().__init__("regular expressions need the library google-re2: pip install 'ostler[explain]'")


def pattern(text: str) -> CompiledPattern:
    """The compiled pattern. Raises CelFault for a wrong one, TooExpensive, and MissingLibrary without google-re2."""
    if len(text) > LONGEST:
        raise TooExpensive
    spend(50 + (len(text) ** 2 >> 7))
    found, size = _compiled(text)
    spend(size)
    if isinstance(found, str):
        raise CelFault(f"error parsing regexp: {found}")
    return CompiledPattern(found, size)


@lru_cache(maxsize=128)
def _compiled(text: str) -> tuple[_Library | str, int]:
    """The pattern, or the error in it; and the number of its instructions. Raises MissingLibrary."""
    try:
        import re2  # type: ignore[import-untyped]  # an optional extra, and few expressions need it
    except ImportError:
        raise MissingLibrary from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.never_capture = True  # CEL has no groups, and thousands of them are slow
    try:
        compiled: _Library = re2.compile(utf8(text), options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return shown, _LARGEST if "too large" in shown else 0
    return compiled, compiled.programsize


def _text_behind(value: Value) -> Value:
    """The text that cel-go searches for a constant pattern: it unwraps optionals and takes the names of types."""
    while type(value) is Optional and value.present:
        value = value.get()
    return value.name if type(value) is TypeValue else value


def _find(data: bytes, compiled: CompiledPattern) -> Value:
    found = compiled.search(data)
    return "" if found is None else _piece(data, *found)


def _piece(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode("utf-8", "surrogatepass")


def _find_all(data: bytes, compiled: CompiledPattern, limit: Value = -1) -> Value:
    """All matches as Go finds them: an empty match right behind the one before does not count."""
    if type(limit) is not int:
        raise no_such_overload("findAll", limit)
    found: list[Value] = []
    position, before = 0, -1
    while position <= len(data) and len(found) != limit:
        match = compiled.search(data, position)
        if match is None:
            break
        start, end = match
        counts = end > start or start != before
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


_SEARCHES: dict[str, Callable[..., Value]] = {
    "matches": lambda data, compiled: compiled.search(data) is not None,
    "find": _find,
    "findAll": _find_all,
}


def has_patterns(function: str) -> bool:
    """Whether the second argument of the function is a pattern."""
    return function in _SEARCHES


def with_pattern(function: str, expression: str) -> Function:
    """The implementation for one constant pattern, whatever the type of the text. Raises as `pattern` does."""
    compiled = pattern(expression)
    search = _SEARCHES[function]

    def call(value: Value, _expression: Value, *limit: Value) -> Value:
        text = _text_behind(value)
        if type(text) is not str:
            raise no_such_overload(function, text, expression)
        return search(utf8(text), compiled, *limit)

    return call


def _with_any_pattern(function: str) -> Function:
    search = _SEARCHES[function]

    def call(text: Value, expression: Value, *limit: Value) -> Value:
        if type(text) is not str or type(expression) is not str:
            raise no_such_overload(function, text, expression)
        return search(utf8(text), pattern(expression), *limit)

    return call


def _cost(arguments: Sequence[Value], _result: Value) -> int:
    return ceil((1.0 + size_of(arguments[0])) * TEXT) * ceil(size_of(arguments[1]) * REGEX)


def _estimate(text: CostRange, pattern: CostRange, result: CostRange | None = None) -> CallEstimate:
    return CallEstimate((text + ONE).times(TEXT) * pattern.times(REGEX), result)


def _search_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    text = operands[0].range()
    return _estimate(text, operands[1].range(), CostRange(0, text.most))


_MATCHES = Price(_cost, lambda operands: _estimate(operands[0].known(), operands[1].known()))
_SEARCH = Price(_cost, _search_estimate, by_name=True)
_TEXTS = list_of(STRING)

_MATCH, _FIND, _FIND_ALL = (_with_any_pattern(name) for name in _SEARCHES)

LIBRARY: Library = (
    function("matches", "matches", STRING, STRING, result=BOOL, call=_MATCH, price=_MATCHES, singleton=True),
    method("matches", "matches_string", STRING, STRING, result=BOOL, call=_MATCH, price=_MATCHES, singleton=True),
    method("find", "string_find_string", STRING, STRING, result=STRING, call=_FIND, price=_SEARCH),
    method("findAll", "string_find_all_string", STRING, STRING, result=_TEXTS, call=_FIND_ALL, price=_SEARCH),
    method("findAll", "string_find_all_string_int", STRING, STRING, INT, result=_TEXTS, call=_FIND_ALL, price=_SEARCH),
)
