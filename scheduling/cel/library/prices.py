"""The prices of calls, in units: the cost of an evaluated call, and the worst cost by the static types.

One `Price` has both prices of a function. They are cel-go's numbers (`interpreter.CostTracker`, `checker.Cost`) with
those of the API server's cost estimator, and must equal them exactly; rates are doubles as in Kubernetes, so that
rounding agrees. Prices that several libraries share are here; a price of one library is in its file.

A price is that of the call alone, without its arguments. Operands are given with the target first. Sizes are those of
values as cel-go sees them; a failed argument or result (a `CelFault`) has size 1.

Ranges go from the least to the most. Their bounds are integers of 64 bits without sign, and `UNBOUNDED` means "no bound
is known". Sums and products stop there; a factor goes through floats, with their rounding, because the published
numbers do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from scheduling.cel.relations import map_keys
from scheduling.cel.syntax import Expr, Literal
from scheduling.cel.types import UINT_MAX, Type, TypeKind
from scheduling.cel.values import LIST_TYPES, MAP_TYPES, Value, elements, size_of, spend, utf8

UNBOUNDED = UINT_MAX
_FLOAT_UNBOUNDED = 2.0**64


@dataclass(frozen=True, slots=True)
class CostRange:
    """From `least` to `most`, both included."""

    least: int
    most: int

    def __add__(self, other: CostRange) -> CostRange:
        return CostRange(min(self.least + other.least, UNBOUNDED), min(self.most + other.most, UNBOUNDED))

    def __mul__(self, other: CostRange) -> CostRange:
        return CostRange(min(self.least * other.least, UNBOUNDED), min(self.most * other.most, UNBOUNDED))

    def __or__(self, other: CostRange) -> CostRange:
        """The smallest range that holds both."""
        return CostRange(min(self.least, other.least), max(self.most, other.most))

    def times(self, factor: float) -> CostRange:
        """Both bounds times a factor, rounded up."""
        return CostRange(_times(self.least, factor), _times(self.most, factor))


def exactly(number: int) -> CostRange:
    """The range of one number."""
    return CostRange(number, number)


def _times(number: int, factor: float) -> int:
    product = float(number) * factor
    return UNBOUNDED if product >= _FLOAT_UNBOUNDED else math.ceil(product)


NOTHING = exactly(0)
ONE = exactly(1)
UNKNOWN = CostRange(0, UNBOUNDED)
EMPTY = CostRange(UNBOUNDED, 0)
"""The neutral range of a union."""


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


def part_size(path: Sequence[str]) -> CostRange | None:
    """The range of the size of a part of the device, by the path to it; None for what Kubernetes does not declare.

    A path is the variable, names of fields, and `@keys`, `@values`, `@items`, `@indices` for what is inside a map or a
    list. Sizes are characters of strings and entries of maps. Source: the limits of the resource API as Kubernetes'
    compiler for device expressions declares them; a declared part without a limit has the size 0.
    """
    if not path or path[0] != "device":
        return None
    part = _DEVICE
    for step in path[1:]:
        inner = _inside(part, step)
        if inner is None:
            return None
        part = inner
    return CostRange(0, part.most)


def _inside(part: _Part, step: str) -> _Part | None:
    if step in {"@items", "@values"}:
        return part.values
    if step == "@keys":
        return part.keys
    return part.fields.get(step) or (part.values if part.any_field else None)


TEXT = 0.1
"""Units for reading one character."""
REGEX = 0.25
"""Units per character of a regular expression; about four characters make one instruction."""
LIST = 10
"""Units of making a list."""
MAP = 30
"""Units of making a map."""
MESSAGE = 40
"""Units of making a message."""


@dataclass(frozen=True, slots=True)
class CallOperand:
    """A target or an argument. `path` is empty if it is no part of a variable; `size` is None if it is not known."""

    expression: Expr
    type: Type
    path: Sequence[str]
    size: CostRange | None

    def known(self) -> CostRange:
        """The size as far as it is known already."""
        return self.size or UNKNOWN

    def range(self) -> CostRange:
        """The size, looked up by the path if it is not known otherwise."""
        return self.size or part_size(self.path) or UNKNOWN

    def number(self, otherwise: int) -> int:
        """The value of an argument that is written as an int; a negative one counts as 0."""
        number = self.written_int()
        return otherwise if number is None else max(number, 0)

    def written_int(self) -> int | None:
        """The value of an argument that is written as an int, None for anything else."""
        literal = self.expression
        return literal.value if isinstance(literal, Literal) and type(literal.value) is int else None

    def element(self) -> CallOperand | None:
        """The elements of a list; None for anything that is not a list."""
        if not self.type.parameters:
            return None
        path = (*self.path, "@items") if self.path else ()
        return CallOperand(self.expression, self.type.parameters[0], path, None)


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """The worst cost of a call and the size of its result, None if the size is unknown."""

    cost: CostRange
    size: CostRange | None = None


Cost = Callable[[Sequence[Value], Value], int]
"""Units of an evaluated call, from its arguments and its result."""
Estimate = Callable[[Sequence[CallOperand]], CallEstimate]
"""The worst cost of a call."""


@dataclass(frozen=True, slots=True)
class Price:
    """Both prices of a function; None is one unit.

    `by_name`: the API server prices the function by its name, so the cost holds too where the static types leave
    several overloads. All overloads of one name that are priced by name must have the same cost.
    """

    cost: Cost | None = None
    estimate: Estimate | None = None
    by_name: bool = False


ONE_UNIT = Price()


def text_cost(rate: float) -> Cost:
    """Units of reading the first argument."""
    return lambda arguments, _result: ceil(size_of(arguments[0]) * rate)


def reads(rate: float = TEXT) -> Price:
    """The price of a function that reads its first operand."""
    return Price(text_cost(rate), lambda operands: CallEstimate(operands[0].range().times(rate)), by_name=True)


READS_TEXT = reads()
"""Reading a text once."""


COPIES_TEXT = Price(
    text_cost(TEXT),
    lambda operands: CallEstimate(operands[0].range().times(TEXT), operands[0].range()),
    by_name=True,
)
"""Making a text (or a URL) of another one that is not longer."""


_TEXTS = frozenset((TypeKind.STRING, TypeKind.BYTES))


def scan(operands: Sequence[CallOperand]) -> CallEstimate:
    """One comparison per element, and reading the elements if they are texts; or reading the target, a text."""
    target = operands[0]
    element = target.element()
    if element is None:
        return CallEstimate(target.range().times(TEXT))
    each = ONE
    if element.type.kind in _TEXTS:
        each += element.range().times(TEXT)
    return CallEstimate(target.range() * each)


def traversal(arguments: Sequence[Value], _result: Value) -> int:
    """The API server's cost of going through a whole value: a tenth per byte, one for anything small."""
    total = 0
    pending: list[Value] = [arguments[0]]
    while pending:
        each = pending.pop()
        kind = type(each)
        if kind is str:
            total += int(len(utf8(each)) * TEXT)  # type: ignore[arg-type]
        elif kind is bytes:
            total += int(len(each) * TEXT)  # type: ignore[arg-type]
        elif kind in LIST_TYPES:
            inner = elements(each)
            spend(len(inner))
            pending.extend(inner)
        elif kind in MAP_TYPES:
            spend(len(each))  # type: ignore[arg-type]
            pending.extend(map_keys(each))
            pending.extend(each.values())  # type: ignore[attr-defined]
        else:
            total += 1
    return total


SCANS = Price(traversal, scan, by_name=True)
"""Going through a list or a text to find or compare what is in it."""
