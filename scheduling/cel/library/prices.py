"""What a call costs, in units: when it is evaluated, and at worst by what the checker knows of its arguments.

Both prices of a function stand in one `Price`. They are cel-go's numbers (`interpreter.CostTracker`, `checker.Cost`)
with those of the API server's cost estimator, and must equal them exactly; rates are kept as the doubles they are
there, so that rounding agrees. Prices that several libraries share are here; a price of one library stands in its file.

A price is that of the call alone, without its arguments. Operands are given with the target first. Sizes are those of
values as cel-go sees them; a failed argument or result (a `CelFault`) has size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from scheduling.cel.mappings import map_keys
from scheduling.cel.ranges import ONE, UNKNOWN, Range, part_size
from scheduling.cel.syntax import Expr, Literal
from scheduling.cel.types import Kind, Type
from scheduling.cel.values import LIST_TYPES, MAP_TYPES, Value, elements, size_of, spend, utf8

TEXT = 0.1
"""Units per character gone through."""
REGEX = 0.25
"""Units per character of a regular expression: about four of them make one instruction."""
LIST = 10
"""Making a list."""
MAP = 30
"""Making a map."""
MESSAGE = 40
"""Making a message."""


@dataclass(frozen=True, slots=True)
class CallOperand:
    """A target or an argument. `path` is empty if it is no part of a variable; `size` is None if it is not known."""

    expression: Expr
    type: Type
    path: Sequence[str]
    size: Range | None

    def known(self) -> Range:
        """The size as far as it is known already."""
        return self.size or UNKNOWN

    def range(self) -> Range:
        """The size, looked up by the path where it is not known otherwise."""
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
    """The worst cost of a call and the size of its result, None where nothing is known of the size."""

    cost: Range
    size: Range | None = None


Cost = Callable[[Sequence[Value], Value], int]
"""Units of an evaluated call, from its arguments and its result."""
Estimate = Callable[[Sequence[CallOperand]], CallEstimate]
"""The worst cost of a call."""


@dataclass(frozen=True, slots=True)
class Price:
    """Both prices of a function; None is one unit.

    `by_name`: the API server prices the function by its name, so the cost holds too where the static types leave
    several overloads. All overloads of a name that are priced so must have one price for that case.
    """

    cost: Cost | None = None
    estimate: Estimate | None = None
    by_name: bool = False


ONE_UNIT = Price()


def text_cost(rate: float) -> Cost:
    """Units of going through the first argument."""
    return lambda arguments, _result: ceil(size_of(arguments[0]) * rate)


def reads(rate: float = TEXT) -> Price:
    """The price of a function that goes through its first operand."""
    return Price(text_cost(rate), lambda operands: CallEstimate(operands[0].range().times(rate)), by_name=True)


READS_TEXT = reads()
"""Reading a text once."""


def _copies(operands: Sequence[CallOperand]) -> CallEstimate:
    size = operands[0].range()
    return CallEstimate(size.times(TEXT), size)


COPIES_TEXT = Price(text_cost(TEXT), _copies, by_name=True)
"""Making a text (or a URL) of another one that is not longer."""


_TEXTS = frozenset((Kind.STRING, Kind.BYTES))


def scan(operands: Sequence[CallOperand]) -> CallEstimate:
    """One comparison per element, and reading the elements where they are texts; or reading the target, a text."""
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
