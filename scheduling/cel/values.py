"""The values of CEL while an expression is evaluated, and what equal, less and `type` mean for them.

Plain Python values wherever Python has them, because most of an evaluation is looking up and comparing strings:

| CEL | Python |
|---|---|
| bool, int, double, string, bytes, null | bool, int, float, str, bytes, None |
| uint | `Unsigned` |
| list | list, `Growing` (an accumulator) or `Joined` (two lists seen as one); `elements` gives a list of any |
| map | dict, keyed by `mappings.map_key` of the keys; those of a device are `Texts` and `Domains` |
| timestamp, duration | `Timestamp`, `Duration` |
| type, optional | `TypeValue`, `Optional` |
| Kubernetes' own types | subclasses of `Opaque` |

Invariants: a value is never changed once another part can see it, except a `Growing` list and a `GrowingMap`, which
cel-go changes in place too. Python's `==` is not CEL's: `True == 1` in Python, and ints compare with doubles as doubles
in CEL; use `relations.equal`. An evaluation error is the exception `CelFault`; where one must be kept as a value (an
accumulator), the exception object takes the value's place.

Work that upstream does not charge for (elements compared, rounds of a comprehension that cost nothing) is counted
against `WORK_LIMIT`, so that a hostile expression ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import local
from typing import ClassVar

from scheduling.cel.types import DURATION, INT_MAX, INT_MIN, TIMESTAMP, UINT_MAX, Type

Value = object
"""Any value of the table above."""

WORK_LIMIT = 2_000_000
"""Steps that one evaluation may take in addition to those that cost units."""
TEXT_LIMIT = 16 * 2**20
"""Longest text an expression may build, in characters: longer ones would exceed the cost limit when used."""
_LONG_TEXT = 4096
_JOIN_FROM = 512
"""From this size on, `+` makes a view of two lists instead of a new list: cel-go charges one unit for any size."""


class CelFault(Exception):
    """An evaluation error: its text and, once known, the number of the node that failed."""

    def __init__(self, message: str, node: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.node = node


class Stop(Exception):
    """Ends the evaluation; nothing in the expression can catch it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TooExpensive(Stop):
    """The cost limit is exceeded, or would be if the operation were finished."""

    def __init__(self) -> None:
        super().__init__("the cost limit is exceeded")


def no_such_overload(function: str = "", *arguments: Value) -> CelFault:
    """The fault of a function that has no implementation for these arguments."""
    if not function:
        return CelFault("no such overload")
    return CelFault(f"no such overload: {function}({', '.join(type_name(each) for each in arguments)})")


class _Meter(local):
    """The steps left to the evaluation that runs in this thread."""

    left = WORK_LIMIT


_METER = _Meter()


def refill() -> None:
    """Gives the next evaluation in this thread all steps again."""
    _METER.left = WORK_LIMIT


def spend(steps: int) -> None:
    """Counts steps that cost nothing in cel-go: elements visited, long texts copied. Raises TooExpensive."""
    _METER.left -= steps
    if _METER.left < 0:
        raise TooExpensive


def spend_on_text(length: int) -> None:
    """Counts the copying or comparing of a text; short ones are part of any step."""
    if length > _LONG_TEXT:
        spend(length >> 10)


class Unsigned(int):
    """A uint, from 0 to 2**64-1."""

    __slots__ = ()


class Growing(list[Value]):
    """The list that a comprehension collects; `+` changes it in place, as in cel-go."""

    __slots__ = ()


class GrowingMap(dict[object, Value]):
    """The map that a comprehension collects."""

    __slots__ = ()


class Joined:
    """Two lists one after the other, not copied until the elements are needed."""

    __slots__ = ("parts", "size")

    def __init__(self, left: Value, right: Value, size: int) -> None:
        self.parts: tuple[Value, ...] = (left, right)
        self.size = size

    def flat(self) -> list[Value]:
        """The elements. Raises `TooExpensive` for lists so long that any use of them would exceed the cost limit."""
        if len(self.parts) > 1:
            spend(self.size)
            found: list[Value] = []
            pending: list[Value] = [self]
            while pending:
                part = pending.pop()
                if isinstance(part, Joined):
                    pending.extend(reversed(part.parts))
                else:
                    assert isinstance(part, list)
                    found.extend(part)
            self.parts = (found,)
        (whole,) = self.parts
        assert isinstance(whole, list)
        return whole


def growing(value: Value) -> Value:
    """The start of an accumulator: an empty list or map becomes one that grows in place."""
    if is_list(value) and not list_size(value):
        return Growing()
    if is_map(value) and not value:
        return GrowingMap()
    return value


class Texts(dict[object, Value]):
    """A map whose keys are all strings; looking up any other key is safe and finds nothing."""

    __slots__ = ()


class Domains(dict[object, Value]):
    """Domain -> id -> value. Looking up an unknown domain gives an empty map; `in` and iteration do not find it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """The value of `type(x)`; types are equal by their names."""

    name: str


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A moment: nanoseconds since 1970 in UTC, and the offset from UTC it was written with, in seconds."""

    nanoseconds: int
    offset: int = 0

    cel_type: ClassVar[Type] = TIMESTAMP


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time in nanoseconds, within 64 bits."""

    nanoseconds: int

    cel_type: ClassVar[Type] = DURATION


class Optional:
    """An optional value; `NONE` is the empty one."""

    __slots__ = ("_value", "present")

    def __init__(self, value: Value = None, *, present: bool = True) -> None:
        self._value = value
        self.present = present

    def __repr__(self) -> str:
        return f"Optional({self._value!r})" if self.present else "NONE"

    def get(self) -> Value:
        """The value. Raises CelFault for the empty one."""
        if not self.present:
            raise CelFault("optional.none() dereference")
        return self._value


NONE = Optional(present=False)


class Opaque:
    """A value of one of Kubernetes' own types.

    Subclasses are immutable and hashable, set `cel_type` and define `cel_equal`; those whose size counts for costs
    (cel-go's `Sizer`) define `cel_size` too.
    """

    __slots__ = ()
    cel_type: ClassVar[Type]

    def cel_equal(self, other: Value) -> bool:
        """CEL's `==`. Raises CelFault for a value of another type."""
        if type(other) is not type(self):
            raise no_such_overload()
        return self == other

    def cel_size(self) -> int:
        """The size that costs count with, in units of cel-go's `Sizer`."""
        return 1


LIST_TYPES = frozenset((list, Growing, Joined))
MAP_TYPES = frozenset((dict, Domains, GrowingMap, Texts))
_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Unsigned: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    Growing: "list",
    Joined: "list",
    dict: "map",
    Domains: "map",
    GrowingMap: "map",
    Texts: "map",
    TypeValue: "type",
    Optional: "optional_type",
    Timestamp: TIMESTAMP.name,
    Duration: DURATION.name,
}


def type_name(value: Value) -> str:
    """The name of a value's type at run time."""
    name = _NAMES.get(type(value))
    if name is None:
        assert isinstance(value, Opaque), value
        name = value.cel_type.name
    return name


def is_list(value: Value) -> bool:
    """Whether the value is a list."""
    return type(value) in LIST_TYPES


def is_map(value: Value) -> bool:
    """Whether the value is a map."""
    return type(value) in MAP_TYPES


def elements(value: Value) -> list[Value]:
    """The elements of a list, not to be changed. Raises TooExpensive for a list beyond all limits."""
    if type(value) is Joined:
        return value.flat()
    assert isinstance(value, list)
    return value


def list_size(value: Value) -> int:
    """The number of elements of a list."""
    if type(value) is Joined:
        return value.size
    assert isinstance(value, list)
    return len(value)


def join_lists(left: Value, right: Value) -> Value:
    """`left + right`, which changes `left` if it is an accumulator."""
    if type(left) is Growing:
        spend(list_size(right))
        left.extend(elements(right))
        return left
    first = list_size(left)
    second = list_size(right)
    if not first:
        return right
    if not second:
        return left
    if first + second < _JOIN_FROM:
        return elements(left) + elements(right)
    if first + second > INT_MAX:
        raise TooExpensive
    return Joined(_kept(left), _kept(right), first + second)


def _kept(part: Value) -> Value:
    """The list, copied if it is an accumulator that may still change."""
    if type(part) is not Growing:
        return part
    spend(len(part))
    return list(part)


def size_of(value: Value) -> int:
    """The size that costs count with: characters, bytes, elements; 1 for values without a size."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value)  # type: ignore[arg-type]
    if kind in LIST_TYPES:
        return list_size(value)
    if kind in MAP_TYPES:
        return len(value)  # type: ignore[arg-type]
    if kind is Optional and value.present:  # type: ignore[attr-defined]
        return size_of(value.get())  # type: ignore[attr-defined]
    if isinstance(value, Opaque):
        return value.cel_size()
    return 1


def utf8(text: str) -> bytes:
    """The bytes of a text as Go has them."""
    spend_on_text(len(text))
    return text.encode("utf-8", "surrogatepass")


def checked_int(number: int) -> int:
    """The number as an int. Raises CelFault when it does not fit into 64 bits."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelFault("integer overflow")


def checked_uint(number: int) -> Unsigned:
    """The number as a uint. Raises CelFault when it does not fit."""
    if 0 <= number <= UINT_MAX:
        return Unsigned(number)
    raise CelFault("unsigned integer overflow")


Function = Callable[..., Value]
