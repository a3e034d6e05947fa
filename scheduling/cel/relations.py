"""Which values are equal, which comes first, and what a map finds by a key.

Ints, uints and doubles are equal when the numbers are, compared as doubles as soon as one is a double. Containers are
compared element by element; values of different types are different, except that some of Kubernetes' own types make
it an error.

Keys of a map that have different types are different keys, although Python holds `True`, `1` and `1.0` for the same;
look-ups use CEL's equality of numbers anyway, as far as cel-go does.
"""

from __future__ import annotations

from math import isfinite, isnan

from scheduling.cel.types import CIDR, INT_MAX, INT_MIN, IP, NAMED_FORMAT, SEMVER, UINT_MAX
from scheduling.cel.values import (
    LIST_TYPES,
    MAP_TYPES,
    CelFault,
    Domains,
    Duration,
    Opaque,
    Optional,
    Stop,
    Texts,
    Timestamp,
    Unsigned,
    Value,
    elements,
    is_list,
    is_map,
    list_size,
    no_such_overload,
    spend,
    spend_on_text,
)

_NUMBERS = frozenset((int, Unsigned, float))
_ORDERED = frozenset((str, bytes, bool))
_TIMES = frozenset((Timestamp, Duration))


def equal(left: Value, right: Value) -> bool:
    """CEL's `==`. Raises CelFault where the comparison is an error, TooExpensive for huge containers."""
    kind = type(left)
    if kind is type(right):
        if kind is str or kind is int or kind is bool or kind is float or kind is bytes:
            return left == right
    elif kind in _NUMBERS:
        return type(right) in _NUMBERS and _numbers_equal(left, right)
    if left is None or right is None:
        return left is right
    if kind in LIST_TYPES or kind in MAP_TYPES or kind is Optional:
        return _same(left, right)
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


def _same(left: Value, right: Value) -> bool:
    """Whether two containers are equal. An error between elements counts as equal, as in cel-go's lists."""
    pending = [(left, right, True)]
    while pending:
        one, other, outermost = pending.pop()
        if is_list(one):
            if not is_list(other) or list_size(one) != list_size(other):
                return False
            pairs = [(a, b, False) for a, b in zip(elements(one), elements(other), strict=True)]
        elif is_map(one):
            found = _pairs(one, other)
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
            except CelFault:
                if outermost:
                    raise
            continue
        spend(len(pairs))
        pending.extend(reversed(pairs))
    return True


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
    """-1, 0 or 1. Raises CelFault for values that have no order among each other."""
    kind = type(left)
    other = type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if kind is not float and other is not float:
            return int(left > right) - int(left < right)  # type: ignore[operator]
        return _compare_doubles(float(left), float(right))  # type: ignore[arg-type]
    if kind is other and kind in _ORDERED:
        if kind is not bool:
            spend_on_text(min(len(left), len(right)))  # type: ignore[arg-type]
        return int(left > right) - int(left < right)  # type: ignore[operator]
    if kind is other and kind in _TIMES:
        first: int = left.nanoseconds  # type: ignore[attr-defined]
        second: int = right.nanoseconds  # type: ignore[attr-defined]
        return int(first > second) - int(first < second)
    raise no_such_overload()


def _compare_doubles(left: float, right: float) -> int:
    if isnan(left) or isnan(right):
        raise CelFault("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


COMPARABLE = frozenset((bool, int, Unsigned, float, str, bytes, Timestamp, Duration))
"""The types of values that have an order."""


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
    """The key of the dict behind a map: keys of different types never meet.

    Raises Stop for bytes, versions and formats, which break cel-go's maps.
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    if kind is bytes:
        raise Stop("internal error: bytes cannot be keys")
    if kind in LIST_TYPES or kind in MAP_TYPES or kind is Optional:
        return (kind, _Itself(key))
    if isinstance(key, Opaque):
        if key.cel_type in (SEMVER, NAMED_FORMAT):
            raise Stop(f"internal error: values of type {key.cel_type} cannot be keys")
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


def integer_keys(number: float) -> list[object]:
    """The dict keys of the int and the uint that equal a number."""
    if not isfinite(number) or number != int(number):
        return []
    whole = int(number)
    found: list[object] = []
    if INT_MIN < whole <= INT_MAX:  # cel-go does not take a double for the least int
        found.append(whole)
    if 0 <= whole <= UINT_MAX:
        found.append((Unsigned, Unsigned(whole)))
    return found


def _find_other(mapping: dict[object, Value], key: Value) -> tuple[bool, Value]:
    candidates: list[object] = []
    if type(key) not in LIST_TYPES and type(key) not in MAP_TYPES and type(key) is not bytes:
        candidates.append(map_key(key))
    if isinstance(key, float | Unsigned):
        candidates += integer_keys(key)
    for each in candidates:
        value = mapping.get(each, _MISSING)
        if value is not _MISSING:
            return True, value
    return False, None


def has_key(mapping: dict[object, Value], key: Value) -> bool:
    """`key in mapping`, for domains too: an unknown domain is not in them."""
    if type(mapping) is Domains:
        return type(key) is str and key in mapping
    return find(mapping, key)[0]
