"""Ranges of sizes and costs, from the least to the most: the arithmetic of cel-go's estimates.

Invariant: bounds are integers of 64 bits without sign, and `UNBOUNDED` stands for "no bound is known". Sums and
products stop there; a factor goes through floats, with their rounding, because the published numbers do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
