"""The extension for optional values.

The planner compiles `or`, `orValue` and selections, which evaluate only what they need.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from scheduling.cel.library.function import Library, function, method
from scheduling.cel.library.times import MIN_SECOND, SECOND
from scheduling.cel.types import BOOL, DYN, INT, STRING, list_of, map_of, optional_of, parameter
from scheduling.cel.values import (
    NONE,
    CelFault,
    Duration,
    Optional,
    Timestamp,
    Value,
    elements,
    is_list,
    is_map,
    list_size,
    size_of,
)


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


def _at(position: int) -> Callable[[Value], Value]:
    return lambda entries: Optional(elements(entries)[position]) if list_size(entries) else NONE


def _unwrap(entries: Value) -> Value:
    found: list[Value] = []
    for each in elements(entries):
        if not isinstance(each, Optional):
            raise CelFault("a value of the list is not optional")
        if each.present:
            found.append(each.get())
    return found


_K = parameter("K")
_V = parameter("V")
_OPTIONAL = optional_of(_V)
_LIST = list_of(_V)
_MAP = map_of(_K, _V)

LIBRARY: Library = (
    function("optional.of", "optional_of", _V, result=_OPTIONAL, call=Optional),
    function(
        "optional.ofNonZeroValue",
        "optional_ofNonZeroValue",
        _V,
        result=_OPTIONAL,
        call=lambda value: NONE if _is_zero(value) else Optional(value),
    ),
    function("optional.none", "optional_none", result=_OPTIONAL, call=lambda: NONE),
    function("optional.unwrap", "optional_unwrap", list_of(_OPTIONAL), result=_LIST, call=_unwrap),
    method("unwrapOpt", "optional_unwrapOpt", list_of(_OPTIONAL), result=_LIST, call=_unwrap),
    method("value", "optional_value", _OPTIONAL, result=_V, call=Optional.get),
    method("hasValue", "optional_hasValue", _OPTIONAL, result=BOOL, call=attrgetter("present")),
    method("or", "optional_or_optional", _OPTIONAL, _OPTIONAL, result=_OPTIONAL),
    method("orValue", "optional_orValue_value", _OPTIONAL, _V, result=_V),
    method("first", "list_first", _LIST, result=_OPTIONAL, call=_at(0)),
    method("last", "list_last", _LIST, result=_OPTIONAL, call=_at(-1)),
    function("_?._", "select_optional_field", DYN, STRING, result=_OPTIONAL),
    function("_[?_]", "list_optindex_optional_int", _LIST, INT, result=_OPTIONAL),
    function("_[?_]", "optional_list_optindex_optional_int", optional_of(_LIST), INT, result=_OPTIONAL),
    function("_[?_]", "map_optindex_optional_value", _MAP, _K, result=_OPTIONAL),
    function("_[?_]", "optional_map_optindex_optional_value", optional_of(_MAP), _K, result=_OPTIONAL),
    function("_[_]", "optional_list_index_int", optional_of(_LIST), INT, result=_OPTIONAL),
    function("_[_]", "optional_map_index_value", optional_of(_MAP), _K, result=_OPTIONAL),
)
