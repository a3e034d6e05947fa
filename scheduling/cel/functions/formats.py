"""The functions of named formats: one that gives each format, `format.named` for any, and `validate`."""

from __future__ import annotations

from scheduling.cel.formats import FORMATS, NamedFormat
from scheduling.cel.functions.registry import Implementation
from scheduling.cel.types import NAMED_FORMAT, STRING
from scheduling.cel.values import NONE, Optional, Value


def _named(name: str) -> Value:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: NamedFormat, text: str) -> Value:
    """An optional list of complaints: none if there are none."""
    complaints: list[Value] = [*named.check(text)]
    return Optional(complaints) if complaints else NONE


def _constant(function: str, named: NamedFormat) -> Implementation:
    return Implementation(function, function, (), lambda: named)


IMPLEMENTATIONS = (
    Implementation("format-named", "format.named", (STRING,), _named),
    Implementation("format-validate", "validate", (NAMED_FORMAT, STRING), _validate),
    *(_constant(f"format.{name}", named) for name, named in FORMATS.items()),
)
