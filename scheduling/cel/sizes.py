"""What the size of a device's parts is at most, by the path to them.

A path is a sequence of strings: the variable, names of fields, and `@keys`, `@values`, `@items`, `@indices` for what is
inside a map or a list. Sizes: characters of strings, entries of maps. Source: the limits of the resource API, in the
way Kubernetes' compiler for device expressions declares them; a part without a declared limit there has the size 0, a
part that is not declared has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduling.cel.ranges import Range

_DOMAIN = 63
_ID = 32
_DRIVER = 63
_ENTRIES = 32
_ATTRIBUTE = 64
"""A string or a version; a list of values has at most 48."""


@dataclass(frozen=True, slots=True)
class _Part:
    """`most` is the limit; a map has `keys` and `values`, the device has `fields`."""

    most: int
    keys: _Part | None = None
    values: _Part | None = None
    fields: Mapping[str, _Part] = field(default_factory=dict)
    any_field: bool = False  # a name selects one of the values, as of a map of attributes


def _domains(value: _Part, *, any_field: bool) -> _Part:
    inner = _Part(_ENTRIES, keys=_Part(_ID), values=value, any_field=any_field)
    return _Part(_ENTRIES, keys=_Part(_DOMAIN), values=inner)


_DEVICE = _Part(
    0,
    fields={
        "driver": _Part(_DRIVER),
        "allowMultipleAllocations": _Part(1),
        "attributes": _domains(_Part(_ATTRIBUTE), any_field=True),
        "capacity": _domains(_Part(0), any_field=False),
    },
)


def size_of(path: Sequence[str]) -> Range | None:
    """The range of the size of what the path leads to; None if nothing is known."""
    if not path or path[0] != "device":
        return None
    part = _DEVICE
    for step in path[1:]:
        inner = _inside(part, step)
        if inner is None:
            return None
        part = inner
    return Range(0, part.most)


def _inside(part: _Part, step: str) -> _Part | None:
    if step in {"@items", "@values"}:
        return part.values
    if step == "@keys":
        return part.keys
    return part.fields.get(step) or (part.values if part.any_field else None)
