"""The values of CEL while an expression is evaluated, and what equal, less and `type` mean for them.

Plain Python values wherever Python has them, because most of an evaluation is looking up and comparing strings:

| CEL | Python |
|---|---|
| bool, int, double, string, bytes, null | bool, int, float, str, bytes, None |
| uint | `Unsigned` |
| list | list, `Growing` (an accumulator) or `Joined` (two lists seen as one); `elements` gives a list of any |
| map | dict, keyed by `map_key` of the keys; those of a device are `Texts` and `Domains` |
| timestamp, duration | `Timestamp`, `Duration` |
| type, optional | `TypeValue`, `Optional` |
| Kubernetes' own types | subclasses of `Opaque` |

Invariants: a value is never changed once another part can see it, except a `Growing` list and a `GrowingMap`, which
cel-go changes in place too. Python's `==` is not CEL's: `True == 1` in Python, and ints compare with doubles as doubles
in CEL; use `equal`. An evaluation error is the exception `Fault`; where one must be kept as a value (an accumulator),
the exception object stands in the value's place.

Work that upstream does not charge for (elements compared, rounds of a comprehension that cost nothing) is counted
against `WORK_LIMIT`, so that a hostile expression ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import ClassVar

from driver.structured.cel.types import CIDR, DURATION, IP, SEMVER, TIMESTAMP, Kind, Type

Value = object
"""Any value of the table above."""

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1

WORK_LIMIT = 2_000_000
"""Steps that one evaluation may take beside those that cost units."""
TEXT_LIMIT = 16 * 2**20
"""Longest text an expression may build, in characters: longer ones would exceed the cost limit when used."""
_JOIN_FROM = 512
"""From this size on, `+` makes a view of two lists instead of a new list: cel-go charges one unit for any size."""


class Fault(Exception):
    """An evaluation error: its text and, once known, the number of the node that failed."""

    def __init__(self, message: str, node: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.node = node


class Stop(Exception):
    """The evaluation ends here: nothing in the expression can catch this."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TooExpensive(Stop):
    """The cost limit is exceeded, or would be if the operation were finished."""

    def __init__(self) -> None:
        super().__init__("the cost limit is exceeded")


def no_such_overload(function: str = "", *arguments: Value) -> Fault:
    """The fault of a function that has no implementation for these arguments."""
    if not function:
        return Fault("no such overload")
    return Fault(f"no such overload: {function}({', '.join(type_name(each) for each in arguments)})")


class Unsigned(int):
    """A uint, from 0 to 2**64-1."""

    __slots__ = ()


class Growing(list[Value]):
    """The list that a comprehension collects: adding to it changes it, as in cel-go."""

    __slots__ = ()


class GrowingMap(dict[object, Value]):
    """The map that a comprehension collects."""

    __slots__ = ()


class Joined:
    """Two lists one after the other, not copied until somebody needs the elements."""

    __slots__ = ("parts", "size")

    def __init__(self, left: Value, right: Value, size: int) -> None:
        self.parts: tuple[Value, ...] = (left, right)
        self.size = size

    def flat(self) -> list[Value]:
        """The elements. Raises `TooExpensive` for lists so long that any use of them would exceed the cost limit."""
        if len(self.parts) > 1:
            if self.size > WORK_LIMIT:
                raise TooExpensive
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
    """What an accumulator starts with: an empty list or map that grows in place, anything else as it is."""
    if is_list(value) and not list_size(value):
        return Growing()
    if is_map(value) and not value:
        return GrowingMap()
    return value


class Texts(dict[object, Value]):
    """A map whose keys are all strings: no other key is found in it, and none breaks it."""

    __slots__ = ()


class Domains(dict[object, Value]):
    """Domain -> id -> value: looking up an unknown domain finds an empty map, `in` and iteration do not."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What `type(x)` gives; types are equal by their names."""

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

    def get(self) -> Value:
        """The value. Raises Fault when there is none."""
        if not self.present:
            raise Fault("optional.none() dereference")
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
        """CEL's `==`. Raises Fault where upstream's comparison of different types is an error."""
        raise NotImplementedError

    def cel_size(self) -> int:
        """What the size is for costs, in units of cel-go's `Sizer`."""
        return 1


LISTS = (list, Growing, Joined)
MAPS = (dict, Domains, GrowingMap, Texts)
_LIST_TYPES = frozenset(LISTS)
_MAP_TYPES = frozenset(MAPS)
_NUMBERS = frozenset((int, Unsigned, float))
_ORDERED = frozenset((str, bytes, bool))
_TIMES = frozenset((Timestamp, Duration))
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
    return type(value) in _LIST_TYPES


def is_map(value: Value) -> bool:
    """Whether the value is a map."""
    return type(value) in _MAP_TYPES


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
    """`left + right`: changes `left` where it is an accumulator."""
    if type(left) is Growing:
        if list_size(right) > WORK_LIMIT:
            raise TooExpensive
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
    return Joined(
        list(left) if type(left) is Growing else left, list(right) if type(right) is Growing else right, first + second
    )


class _Itself:
    """A key that equals nothing but itself: a container."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def map_key(key: Value) -> object:
    """What a key is in the dict behind a map: keys of different types never meet.

    Raises Stop for bytes and versions, which break cel-go's maps.
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    if kind is bytes:
        raise Stop("internal error: bytes cannot be keys")
    if kind in _LIST_TYPES or kind in _MAP_TYPES or kind is Optional:
        return (kind, _Itself(key))
    if isinstance(key, Opaque):
        if key.cel_type == SEMVER:
            raise Stop("internal error: versions cannot be keys")
        return (kind, key if key.cel_type in (IP, CIDR) else _Itself(key))
    return (kind, key)


def unmap_key(stored: object) -> Value:
    """The key that `map_key` made `stored` of."""
    if type(stored) is not tuple:
        return stored
    key: Value = stored[1]
    return key.value if isinstance(key, _Itself) else key


def map_keys(value: Value) -> list[Value]:
    """The keys of a map, in the order of its making."""
    assert isinstance(value, dict)
    return [unmap_key(each) if type(each) is tuple else each for each in value]


_MISSING = object()
_EMPTY: dict[object, Value] = {}


def find(mapping: dict[object, Value], key: Value) -> tuple[bool, Value]:
    """Whether the map has the key, and its value; numbers that are equal find each other, as in cel-go."""
    kind = type(key)
    if kind is str or kind is int:
        value = mapping.get(key, _MISSING)
        if value is not _MISSING:
            return True, value
    if type(mapping) is Domains:
        return True, _EMPTY
    if kind is int:
        value = mapping.get((Unsigned, key), _MISSING)
        return (False, None) if value is _MISSING else (True, value)
    if kind is str or not mapping or type(mapping) is Texts:
        return False, None
    return _find_other(mapping, key)


def _find_other(mapping: dict[object, Value], key: Value) -> tuple[bool, Value]:
    candidates: list[object] = []
    if type(key) not in _LIST_TYPES and type(key) not in _MAP_TYPES and type(key) is not bytes:
        candidates.append(map_key(key))
    if isinstance(key, float) and key == key and abs(key) < 2.0**65 and key == int(key):  # noqa: PLR0124 - not NaN
        whole = int(key)
        if INT_MIN < whole < INT_MAX:
            candidates.append(whole)
        if 0 <= whole <= UINT_MAX:
            candidates.append((Unsigned, Unsigned(whole)))
    elif type(key) is Unsigned and key <= INT_MAX:
        candidates.append(int(key))
    for each in candidates:
        value = mapping.get(each, _MISSING)
        if value is not _MISSING:
            return True, value
    return False, None


def has_key(mapping: dict[object, Value], key: Value) -> bool:
    """`key in mapping`: of the domains too, the ones that are there."""
    if type(mapping) is Domains:
        return type(key) is str and key in mapping
    return find(mapping, key)[0]


def equal(left: Value, right: Value) -> bool:
    """CEL's `==`. Raises Fault where the comparison is an error, TooExpensive for giants."""
    kind = type(left)
    if kind is type(right):
        if kind is str or kind is int or kind is bool or kind is float or kind is bytes:
            return left == right
    elif kind in _NUMBERS:
        return type(right) in _NUMBERS and _numbers_equal(left, right)
    if left is None or right is None:
        return left is right
    if kind in _LIST_TYPES or kind in _MAP_TYPES or kind is Optional:
        return _Comparison().same(left, right)
    if isinstance(left, Opaque):
        return left.cel_equal(right)
    if kind is Timestamp:
        return type(right) is Timestamp and left.nanoseconds == right.nanoseconds  # type: ignore[attr-defined]
    return kind is type(right) and left == right


def _numbers_equal(left: Value, right: Value) -> bool:
    if isinstance(left, float):
        return left == float(right)  # type: ignore[arg-type]
    if isinstance(right, float):
        return float(left) == right  # type: ignore[arg-type]
    return left == right


class _Comparison:
    """One comparison of containers, without recursion and with an end."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def same(self, left: Value, right: Value) -> bool:
        """Whether two containers are equal. An error between elements counts as equal, as in cel-go's lists."""
        pending = [(left, right, True)]
        while pending:
            one, other, outermost = pending.pop()
            if is_list(one):
                if not is_list(other) or list_size(one) != list_size(other):
                    return False
                pairs = [(a, b, False) for a, b in zip(elements(one), elements(other), strict=True)]
            elif is_map(one):
                found = self._pairs(one, other)
                if found is None:
                    return False
                pairs = found
            elif type(one) is Optional:
                if type(other) is not Optional or one.present != other.present:
                    return False
                pairs = [(one.get(), other.get(), outermost)] if one.present else []
            else:
                try:
                    if not equal(one, other):
                        return False
                except Fault:
                    if outermost:
                        raise
                continue
            self.steps += len(pairs)
            if self.steps > WORK_LIMIT:
                raise TooExpensive
            pending.extend(reversed(pairs))
        return True

    @staticmethod
    def _pairs(left: Value, right: Value) -> list[tuple[Value, Value, bool]] | None:
        if not is_map(right) or len(left) != len(right):  # type: ignore[arg-type]
            return None
        pairs: list[tuple[Value, Value, bool]] = []
        for stored, value in left.items():  # type: ignore[attr-defined]
            found, other = find(right, unmap_key(stored))  # type: ignore[arg-type]
            if not found:
                return None
            pairs.append((value, other, False))
        return pairs


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1. Raises Fault for values that have no order among each other."""
    kind = type(left)
    other = type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if kind is not float and other is not float:
            return int(left > right) - int(left < right)  # type: ignore[operator]
        return _compare_doubles(float(left), float(right))  # type: ignore[arg-type]
    if kind is other and kind in _ORDERED:
        return int(left > right) - int(left < right)  # type: ignore[operator]
    if kind is other and kind in _TIMES:
        first: int = left.nanoseconds  # type: ignore[attr-defined]
        second: int = right.nanoseconds  # type: ignore[attr-defined]
        return int(first > second) - int(first < second)
    raise no_such_overload()


def _compare_doubles(left: float, right: float) -> int:
    if isnan(left) or isnan(right):
        raise Fault("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


COMPARABLE = frozenset((bool, int, Unsigned, float, str, bytes, Timestamp, Duration))
"""Types that have an order."""


def size_of(value: Value) -> int:
    """The size that costs are counted by: characters, bytes, elements; 1 for all that has no size."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value)  # type: ignore[arg-type]
    if kind in _LIST_TYPES:
        return list_size(value)
    if kind in _MAP_TYPES:
        return len(value)  # type: ignore[arg-type]
    if kind is Optional and value.present:  # type: ignore[attr-defined]
        return size_of(value.get())  # type: ignore[attr-defined]
    if isinstance(value, Opaque):
        return value.cel_size()
    return 1


def utf8(text: str) -> bytes:
    """The text as Go has it."""
    return text.encode("utf-8", "surrogatepass")


def accepts(declared: Type, value: Value) -> bool:
    """Whether a value may be an argument of the declared type; containers are judged by their first entry."""
    kind = declared.kind
    while kind is Kind.LIST:
        if not is_list(value):
            return False
        if not list_size(value):
            return True
        value = elements(value)[0]
        declared = declared.parameters[0]
        kind = declared.kind
    if kind in (Kind.DYN, Kind.ANY, Kind.PARAMETER):
        return True
    if kind is Kind.MAP:
        if not is_map(value):
            return False
        for stored, entry in value.items():  # type: ignore[attr-defined]
            return accepts(declared.parameters[0], unmap_key(stored)) and accepts(declared.parameters[1], entry)
        return True
    if kind is Kind.TYPE:
        return type(value) is TypeValue
    return declared.name == type_name(value)


def checked_int(number: int) -> int:
    """The number as an int. Raises Fault when it does not fit into 64 bits."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise Fault("integer overflow")


def checked_uint(number: int) -> Unsigned:
    """The number as a uint. Raises Fault when it does not fit."""
    if 0 <= number <= UINT_MAX:
        return Unsigned(number)
    raise Fault("unsigned integer overflow")


def iterate(value: Value) -> Iterator[Value] | None:
    """What a comprehension goes over: elements or keys; None for what has neither."""
    if type(value) in _LIST_TYPES:
        return iter(elements(value))
    if type(value) in _MAP_TYPES:
        return iter(map_keys(value))
    return None


def traversal(value: Value) -> int:
    """The API server's cost of going through a whole value: a tenth per byte, one for anything small."""
    total = 0
    steps = 0
    pending: list[Value] = [value]
    while pending:
        each = pending.pop()
        kind = type(each)
        if kind is str:
            total += int(len(utf8(each)) * 0.1)  # type: ignore[arg-type]
        elif kind is bytes:
            total += int(len(each) * 0.1)  # type: ignore[arg-type]
        elif kind in _LIST_TYPES:
            inner = elements(each)
            steps += len(inner)
            if steps > WORK_LIMIT:
                raise TooExpensive
            pending.extend(inner)
        elif kind in _MAP_TYPES:
            steps += len(each)  # type: ignore[arg-type]
            pending.extend(map_keys(each))
            pending.extend(each.values())  # type: ignore[attr-defined]
        else:
            total += 1
    return total


Call = Callable[..., Value]
Arguments = Sequence[Value]
