"""Functions of optional values; `or` and `orValue` evaluate what they need only and live in the interpreter."""

from __future__ import annotations

from driver.structured.cel.functions.registry import Overload
from driver.structured.cel.types import DYN, list_of, optional_of, parameter
from driver.structured.cel.values import (
    NONE,
    Duration,
    Fault,
    Optional,
    Timestamp,
    Value,
    elements,
    is_list,
    is_map,
    size_of,
)

_BEFORE_ALL = -62_135_596_800_000_000_000
"""Go's zero time: the first moment of the year 1."""


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
    return isinstance(value, Timestamp) and value.nanoseconds == _BEFORE_ALL


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

OVERLOADS = (
    Overload("optional_of", "optional.of", (DYN,), _of),
    Overload("optional_ofNonZeroValue", "optional.ofNonZeroValue", (DYN,), _of_non_zero),
    Overload("optional_none", "optional.none", (), _none, variadic=True),
    Overload("optional_value", "value", (_OPTIONAL,), _value),
    Overload("optional_hasValue", "hasValue", (_OPTIONAL,), _has_value),
    Overload("list_last", "last", (_LIST,), _last),
    Overload("list_first", "first", (_LIST,), _first),
    Overload("optional_unwrap", "optional.unwrap", (list_of(_OPTIONAL),), _unwrap),
    Overload("optional_unwrapOpt", "unwrapOpt", (list_of(_OPTIONAL),), _unwrap),
)
