"""Ranges of sizes and costs, from the least to the most: the arithmetic of cel-go's estimates.

Invariant: bounds are integers of 64 bits without sign, and `UNBOUNDED` stands for "no bound is known". Sums and
products stop there; a factor goes through floats, with their rounding, because the published numbers do.

`part_size` knows the largest sizes of the parts of a device (characters of strings, entries of maps) by the path to
them: the variable, names of fields, and `@keys`, `@values`, `@items`, `@indices` for what is inside a map or a list.
Source: the limits of the resource API as Kubernetes' compiler for device expressions declares them. A part without a
declared limit has the size 0 there; a part that is not declared has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduling.cel.types import UINT_MAX

UNBOUNDED = UINT_MAX
_FLOAT_UNBOUNDED = 2.0**64


@dataclass(frozen=True, slots=True)
class Range:
    """From `least` to `most`, both included."""

    least: int
    most: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.least + other.least, UNBOUNDED), min(self.most + other.most, UNBOUNDED))

    def __mul__(self, other: Range) -> Range:
        return Range(min(self.least * other.least, UNBOUNDED), min(self.most * other.most, UNBOUNDED))

    def __or__(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.least, other.least), max(self.most, other.most))

    def times(self, factor: float) -> Range:
        """Both bounds times a factor, rounded up."""
        return Range(_times(self.least, factor), _times(self.most, factor))


def exactly(number: int) -> Range:
    """The range of one number."""
    return Range(number, number)


def _times(number: int, factor: float) -> int:
    product = float(number) * factor
    return UNBOUNDED if product >= _FLOAT_UNBOUNDED else math.ceil(product)


NOTHING = exactly(0)
ONE = exactly(1)
UNKNOWN = Range(0, UNBOUNDED)
EMPTY = Range(UNBOUNDED, 0)
"""The start of a union."""


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


def part_size(path: Sequence[str]) -> Range | None:
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
