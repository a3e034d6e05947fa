"""Operators and the functions of the language itself, on values whose types are only known now.

Each operator is one function for all its overloads, as in cel-go: which one the checker chose matters for the cost
only. Arithmetic never wraps around: what leaves 64 bits is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, inf, isnan, nan
from operator import ge, gt, le, lt

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.mappings import has_key
from scheduling.cel.moments import timestamp
from scheduling.cel.relations import COMPARABLE, compare, equal
from scheduling.cel.types import DYN, INT_MIN
from scheduling.cel.values import (
    TEXT_LIMIT,
    Duration,
    Fault,
    Timestamp,
    TooExpensive,
    TypeValue,
    Unsigned,
    Value,
    checked_int,
    checked_uint,
    elements,
    is_list,
    is_map,
    join_lists,
    no_such_overload,
    size_of,
    spend,
    spend_on_text,
    type_name,
)


def _add(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left + right)  # type: ignore[operator]
        if kind is str or kind is bytes:
            length = len(left) + len(right)  # type: ignore[arg-type]
            spend_on_text(length)
            if length > TEXT_LIMIT:
                raise TooExpensive
            return left + right  # type: ignore[operator]
        if kind is float:
            return left + right  # type: ignore[operator]
        if kind is Unsigned:
            return checked_uint(left + right)  # type: ignore[operator]
        if kind is Duration:
            return Duration(checked_int(left.nanoseconds + right.nanoseconds))  # type: ignore[attr-defined]
    if is_list(left) and is_list(right):
        return join_lists(left, right)
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return timestamp(left.nanoseconds + right.nanoseconds, left.offset)
    if isinstance(left, Duration) and isinstance(right, Timestamp):
        return timestamp(left.nanoseconds + right.nanoseconds, right.offset)
    raise no_such_overload("_+_", left, right)


def _subtract(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left - right)  # type: ignore[operator]
        if kind is float:
            return left - right  # type: ignore[operator]
        if kind is Unsigned:
            return checked_uint(left - right)  # type: ignore[operator]
        if kind is Duration:
            return Duration(checked_int(left.nanoseconds - right.nanoseconds))  # type: ignore[attr-defined]
    if isinstance(left, Timestamp):
        if isinstance(right, Timestamp):
            return Duration(checked_int(left.nanoseconds - right.nanoseconds))
        if isinstance(right, Duration):
            return timestamp(left.nanoseconds - checked_int(right.nanoseconds), left.offset)
    raise no_such_overload("_-_", left, right)


def _multiply(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)  # type: ignore[operator]
        if kind is float:
            return left * right  # type: ignore[operator]
        if kind is Unsigned:
            return checked_uint(left * right)  # type: ignore[operator]
    raise no_such_overload("_*_", left, right)


def _divide(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right):
        raise no_such_overload("_/_", left, right)
    if kind is float:
        return _divide_doubles(left, right)  # type: ignore[arg-type]
    if kind is int or kind is Unsigned:
        if right == 0:
            raise Fault("division by zero")
        quotient = _truncated(left, right)  # type: ignore[arg-type]
        return checked_int(quotient) if kind is int else Unsigned(quotient)
    raise no_such_overload("_/_", left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if isnan(left) or isnan(right) or left == 0:
        return nan
    return inf * copysign(1, left) * copysign(1, right)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right) or (kind is not int and kind is not Unsigned):
        raise no_such_overload("_%_", left, right)
    if right == 0:
        raise Fault("modulus by zero")
    if left == INT_MIN and right == -1:
        raise Fault("integer overflow")
    rest: int = abs(left) % abs(right)  # type: ignore[arg-type]
    if kind is Unsigned:
        return Unsigned(rest)
    return -rest if left < 0 else rest  # type: ignore[operator]


def _negate(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return checked_int(-value)  # type: ignore[operator]
    if kind is float:
        return -value  # type: ignore[operator]
    if isinstance(value, Duration):
        return Duration(checked_int(-value.nanoseconds))
    raise no_such_overload("-_", value)


def _not(value: Value) -> Value:
    if value is True:
        return False
    if value is False:
        return True
    raise no_such_overload("!_", value)


def _order(holds: Callable[[int, int], bool]) -> Callable[[Value, Value], Value]:
    def operator(left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            return holds(left, right)
        if type(left) not in COMPARABLE:
            raise no_such_overload("", left, right)
        return holds(compare(left, right), 0)

    return operator


_less = _order(lt)
_less_equals = _order(le)
_greater = _order(gt)
_greater_equals = _order(ge)


def contains(entries: list[Value], wanted: Value) -> bool:
    """Whether one of the entries equals; comparisons that fail do not."""
    spend(len(entries) >> 3 if type(wanted) is str else len(entries))
    if type(wanted) is str:
        return wanted in entries
    for each in entries:
        try:
            if equal(wanted, each):
                return True
        except Fault:
            continue
    return False


def _in(wanted: Value, container: Value) -> Value:
    if is_list(container):
        return contains(elements(container), wanted)
    if is_map(container):
        return has_key(container, wanted)  # type: ignore[arg-type]
    raise no_such_overload("@in", wanted, container)


def _size(value: Value) -> Value:
    if type(value) in (str, bytes) or is_list(value) or is_map(value):
        return size_of(value)
    raise no_such_overload("size", value)


def _string_test(name: str, test: Callable[[str, str], bool]) -> Callable[[Value, Value], Value]:
    def call(text: Value, part: Value) -> Value:
        if type(text) is not str or type(part) is not str:
            raise no_such_overload(name, text, part)
        return test(text, part)

    return call


def _type(value: Value) -> Value:
    return TypeValue(type_name(value))


def _identity(value: Value) -> Value:
    return value


_RELATIONS: tuple[str, ...] = (
    "bool",
    "int64",
    "int64_double",
    "int64_uint64",
    "uint64",
    "uint64_double",
    "uint64_int64",
)
_RELATIONS += ("double", "double_int64", "double_uint64", "string", "bytes", "timestamp", "duration")

_BINARY: dict[str, tuple[str, Callable[[Value, Value], Value], tuple[str, ...]]] = {
    "_+_": (
        "add",
        _add,
        (
            *("bytes", "double", "duration_duration", "duration_timestamp", "timestamp_duration"),
            *("int64", "list", "string", "uint64"),
        ),
    ),
    "_-_": (
        "subtract",
        _subtract,
        ("double", "duration_duration", "int64", "timestamp_duration", "timestamp_timestamp", "uint64"),
    ),
    "_*_": ("multiply", _multiply, ("double", "int64", "uint64")),
    "_/_": ("divide", _divide, ("double", "int64", "uint64")),
    "_%_": ("modulo", _modulo, ("int64", "uint64")),
    "_<_": ("less", _less, _RELATIONS),
    "_<=_": ("less_equals", _less_equals, _RELATIONS),
    "_>_": ("greater", _greater, _RELATIONS),
    "_>=_": ("greater_equals", _greater_equals, _RELATIONS),
    "@in": ("in", _in, ("list", "map")),
}

_UNARY: tuple[tuple[str, str, Callable[[Value], Value]], ...] = (
    ("negate_double", "-_", _negate),
    ("negate_int64", "-_", _negate),
    ("logical_not", "!_", _not),
    *(
        (name, "size", _size)
        for kind in ("bytes", "list", "map", "string")
        for name in (f"size_{kind}", f"{kind}_size")
    ),
    ("type", "type", _type),
    ("to_dyn", "dyn", _identity),
)

IMPLEMENTATIONS = (
    *(
        Implementation(f"{stem}_{ending}", function, (DYN, DYN), call, singleton=True)
        for function, (stem, call, endings) in _BINARY.items()
        for ending in endings
    ),
    *(Implementation(name, function, (DYN,), call, singleton=True) for name, function, call in _UNARY),
    Implementation(
        "contains_string", "contains", (DYN, DYN), _string_test("contains", lambda text, part: part in text)
    ),
    Implementation("ends_with_string", "endsWith", (DYN, DYN), _string_test("endsWith", str.endswith)),
    Implementation("starts_with_string", "startsWith", (DYN, DYN), _string_test("startsWith", str.startswith)),
)
