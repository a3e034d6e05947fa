"""YAML texts of documents as data, by the rules of the decoder that Kubernetes uses.

YAML 1.1: `yes`, `off` and `n` are booleans, `010` and `0x10` are numbers. Strict reading refuses a key that a map has
twice. Depth and what aliases add are bounded while values are built, since documents come from others. Whoever reads a
file bounds its size.

The library is imported at the first text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from scheduling.pools.fields import DocumentError, Json

DEEPEST: Final = 100
MOST_REPEATED: Final = 1_000_000
"""Values that aliases add to one text."""
_LONGEST_NUMBER: Final = 100

_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER: Final = re.compile(r"([-+]?)(0b[01]+|0x[0-9a-fA-F]+|0o?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_BASES: Final = {"0b": 2, "0x": 16, "0o": 8}


class _Refused(Exception):
    """A text that is no data."""


def parse_documents(text: str, name: str = "document", *, strict: bool = True) -> list[Json]:
    """The documents of a YAML or JSON text; empty ones are None. `name` is the file's name for messages.

    A value that aliases name is the same object in every place. Raises DocumentError.
    """
    import yaml

    try:
        return list(_Reading(text, strict).documents())
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        said = f"line {line}: not valid YAML: the character U+{error.character:04X} is not allowed; remove it"
        raise DocumentError(name, (said,)) from error
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        where = "" if not mark else f"line {mark.line + 1}: "
        advice = "check indentation (blanks, no tabs), quotes and brackets"
        said = f"{where}not valid YAML: {error.problem or error.context}; {advice}"
        raise DocumentError(name, (said,)) from error
    except _Refused as error:
        raise DocumentError(name, (str(error),)) from error


class _Reading:
    """Builds values from the parser's events, which is half the work of building its nodes first."""

    def __init__(self, text: str, strict: bool) -> None:
        import yaml

        self._yaml: Any = yaml
        self._events: Iterator[Any] = iter(yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        self._strict = strict
        self._anchors: dict[str, tuple[Json, int] | None] = {}
        """By anchor the value and how many values it has; None while it is being read."""
        self._read = 0
        self._repeated = 0
        self._depth = 0

    def documents(self) -> Iterator[Json]:
        """The values of all documents. Raises _Refused."""
        for event in self._events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                self._anchors.clear()
                yield self._value(next(self._events))

    def _value(self, event: Any) -> Json:
        began = self._read
        if isinstance(event, self._yaml.ScalarEvent):
            self._read += 1
            value = _scalar(event)
        elif isinstance(event, self._yaml.AliasEvent):
            return self._alias(event)
        else:
            self._read += 1
            self._enter(event)
            value = self._list() if isinstance(event, self._yaml.SequenceStartEvent) else self._map()
            self._depth -= 1
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._read - began)
        return value

    def _alias(self, event: Any) -> Json:
        if event.anchor not in self._anchors:
            raise _refused(event, f"the alias *{event.anchor} stands before its anchor; write the value out")
        known = self._anchors[event.anchor]
        if known is None:
            raise _refused(event, f"the alias *{event.anchor} is inside its own value; write the value out")
        value, count = known
        self._read += count
        self._repeated += count
        if self._repeated > MOST_REPEATED:
            raise _refused(event, f"aliases make more than {MOST_REPEATED} values; write the values out")
        return value

    def _enter(self, event: Any) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._depth += 1
        if self._depth > DEEPEST:
            raise _refused(event, f"nested deeper than {DEEPEST} levels; no document is that deep")

    def _list(self) -> list[Json]:
        found = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            found.append(self._value(event))
        return found

    def _map(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._key(event)
            if self._strict and key in found:
                raise _refused(event, f"the map has the key {key} twice; keep one")
            found[key] = self._value(next(self._events))
        return found

    def _key(self, event: Any) -> str:
        if isinstance(event, self._yaml.ScalarEvent) and event.value == "<<":
            raise _refused(event, "merge keys (<<) are not supported; write the fields out")
        name = self._value(event)
        if name is None or isinstance(name, dict | list):
            raise _refused(event, "the key of a map must be a text")
        return str(name).lower() if isinstance(name, bool) else str(name)


def _refused(event: Any, why: str) -> _Refused:
    return _Refused(f"line {event.start_mark.line + 1}: {why}")


def _scalar(event: Any) -> Json:
    """A plain scalar by YAML 1.1, any other as a text."""
    text: str = event.value
    if event.style or event.tag == _TEXT_TAG:
        return text
    return _plain(text)


@lru_cache(maxsize=10_000)
def _plain(text: str) -> Json:
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) > _LONGEST_NUMBER:
        return text
    whole = _INTEGER.fullmatch(text)
    if whole is not None:
        digits = whole[2]
        base = _BASES.get(digits[:2], 8 if len(digits) > 1 and digits[0] == "0" else 10)
        size = int(digits[2:] if digits[:2] in _BASES else digits, base)
        return -size if whole[1] == "-" else size
    if _FLOAT.fullmatch(text):
        number = float(text)
        # As in Go, a number beyond all floats stays a text; quantities have a bound of their own.
        return number if isfinite(number) else text
    return text
