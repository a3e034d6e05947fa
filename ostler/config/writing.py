"""Values of our format as the YAML that says them: the way back from ``section``.

Invariant: what is written is read again as the same values. Keys stand in the order of the format's description. A
value that nobody gave and that is the default is left out; ``remark`` says what stands behind a line as a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import cast

from node.rules import FunctionRange
from ostler.config.errors import Origin
from ostler.config.section import AnyField, Field, ListOf, Section, Values

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./+-]*")
_WORDS = re.compile(r"null|true|false|yes|no|on|off|y|n", re.IGNORECASE)
"""Words that some reader of YAML takes for something else than text."""

Remark = Callable[[AnyField, Origin], str]
"""What to say behind the line of a value with this origin; empty for nothing."""


def write_section(section: Section, values: Values, remark: Remark, indent: str = "") -> Iterator[str]:
    """The lines of a section's values, without those of sections that say nothing."""
    given = dict(values)
    for field in section.fields:
        if field.key not in given:
            continue
        value, origin = given[field.key].value, given[field.key].origin
        text = remark(field, origin)
        comment = f"  # {text}" if text else ""
        kind: object = field.type
        if isinstance(kind, Section):
            inner = list(write_section(kind, cast("Values", value), remark, f"{indent}  "))
            if inner:
                yield f"{indent}{field.key}:"
                yield from inner
        elif isinstance(kind, ListOf) and isinstance(kind.item, Section):
            yield f"{indent}{field.key}:"
            for item in values[cast("Field[tuple[Values, ...]]", field)]:
                yield from _write_item(kind.item, item, remark, indent)
        elif comment or value != field.default:
            yield f"{indent}{field.key}: {_written(field, value)}{comment}"


def _write_item(section: Section, item: Values, remark: Remark, indent: str) -> Iterator[str]:
    first, *rest = write_section(section, item, remark, f"{indent}  ")
    yield f"{indent}- {first.lstrip()}"
    yield from rest


def _written(field: AnyField, value: object) -> str:
    if not isinstance(value, tuple):
        return written(value)
    if len(value) == 1 and isinstance(field.type, ListOf) and field.type.single:
        return written(value[0])
    return f"[{', '.join(written(item) for item in value)}]"


def written(value: object) -> str:
    """A single value as a file has it; a duration in seconds."""
    match value:
        case None:
            return '""'
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return f"{value:g}s"
        case FunctionRange():
            return _text(_function_range(value))
        case StrEnum():
            return value.value
    return _text(str(value))


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and not _WORDS.fullmatch(text)
    if plain:
        return text
    # Some characters that are not printable end a line in YAML, quoted or not.
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)


def _function_range(functions: FunctionRange) -> str:
    ranges = (str(low) if low == high else f"{low}-{high}" for low, high in functions.numbers)
    return f"{functions.root}#{','.join(ranges)}" if functions.numbers else functions.root
