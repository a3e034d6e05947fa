"""Functions of optional values; `or` and `orValue` evaluate what they need only and live in the interpreter."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.moments import MIN_SECOND, SECOND
from scheduling.cel.types import DYN, list_of, optional_of, parameter
from scheduling.cel.values import NONE, Duration, Fault, Optional, Timestamp, Value, elements, is_list, is_map, size_of


def _of(value: Value) -> Value:
    return Optional(value)


def _of_non_zero(value: Value) -> Value:
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Value) -> bool:
    if value is None:
        return True
    if isinstance(value, bool | int | float):
        return value == 0
    if isinstance(value, str | bytes) or is_list(value) or is_map(value):
        return size_of(value) == 0
    if isinstance(value, Duration):
        return value.nanoseconds == 0
    return isinstance(value, Timestamp) and value.nanoseconds == MIN_SECOND * SECOND  # Go's zero time


def _none() -> Value:
    return NONE


def _value(optional: Optional) -> Value:
    return optional.get()


def _has_value(optional: Optional) -> Value:
    return optional.present


def _first(entries: Value) -> Value:
    whole = elements(entries)
    return Optional(whole[0]) if whole else NONE


def _last(entries: Value) -> Value:
    whole = elements(entries)
    return Optional(whole[-1]) if whole else NONE


def _unwrap(entries: Value) -> Value:
    found: list[Value] = []
    for each in elements(entries):
        if not isinstance(each, Optional):
            raise Fault("a value of the list is not optional")
        if each.present:
            found.append(each.get())
    return found


_OPTIONAL = optional_of(parameter("V"))
_LIST = list_of(parameter("V"))

IMPLEMENTATIONS = (
    Implementation("optional_of", "optional.of", (DYN,), _of),
    Implementation("optional_ofNonZeroValue", "optional.ofNonZeroValue", (DYN,), _of_non_zero),
    Implementation("optional_none", "optional.none", (), _none),
    Implementation("optional_value", "value", (_OPTIONAL,), _value),
    Implementation("optional_hasValue", "hasValue", (_OPTIONAL,), _has_value),
    Implementation("list_last", "last", (_LIST,), _last),
    Implementation("list_first", "first", (_LIST,), _first),
    Implementation("optional_unwrap", "optional.unwrap", (list_of(_OPTIONAL),), _unwrap),
    Implementation("optional_unwrapOpt", "unwrapOpt", (list_of(_OPTIONAL),), _unwrap),
)
