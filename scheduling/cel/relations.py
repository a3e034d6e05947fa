"""Which values are equal, and which comes first.

Ints, uints and doubles are equal when the numbers are, compared as doubles as soon as one is a double. Containers are
compared element by element; values of different types are different, except that some of Kubernetes' own types make
it an error.
"""

from __future__ import annotations

from math import isnan

from scheduling.cel.mappings import find, unmap_key
from scheduling.cel.values import (
    LIST_TYPES,
    MAP_TYPES,
    Duration,
    Fault,
    Opaque,
    Optional,
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
    """CEL's `==`. Raises Fault where the comparison is an error, TooExpensive for giants."""
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
            except Fault:
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
    """-1, 0 or 1. Raises Fault for values that have no order among each other."""
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
        raise Fault("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


COMPARABLE = frozenset((bool, int, Unsigned, float, str, bytes, Timestamp, Duration))
"""Types that have an order."""
