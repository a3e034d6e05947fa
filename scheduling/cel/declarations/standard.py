"""The operators and functions of the CEL specification."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import A, B, Library, Overload, function, method
from scheduling.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    type_of,
)

_LIST = list_of(A)
_MAP = map_of(A, B)

_INT64, _UINT64, _DOUBLE = ("int64", INT), ("uint64", UINT), ("double", DOUBLE)

_ORDERED: tuple[tuple[tuple[str, Type], tuple[str, Type]], ...] = (
    (("bool", BOOL), ("", BOOL)),
    (_INT64, ("", INT)),
    (_INT64, _DOUBLE),
    (_INT64, _UINT64),
    (_UINT64, ("", UINT)),
    (_UINT64, _DOUBLE),
    (_UINT64, _INT64),
    (_DOUBLE, ("", DOUBLE)),
    (_DOUBLE, _INT64),
    (_DOUBLE, _UINT64),
    (("string", STRING), ("", STRING)),
    (("bytes", BYTES), ("", BYTES)),
    (("timestamp", TIMESTAMP), ("", TIMESTAMP)),
    (("duration", DURATION), ("", DURATION)),
)


def _comparison(name: str) -> tuple[Overload, ...]:
    return tuple(
        function(f"{name}_{left}_{right}" if right else f"{name}_{left}", first, second, result=BOOL)
        for (left, first), (right, second) in _ORDERED
    )


def _arithmetic(name: str, types: dict[str, Type]) -> tuple[Overload, ...]:
    return tuple(function(f"{name}_{suffix}", each, each, result=each) for suffix, each in types.items())


def _conversion(result: Type, **sources: Type) -> tuple[Overload, ...]:
    return tuple(function(identifier, each, result=result) for identifier, each in sources.items())


_OPERATORS: Library = {
    "_?_:_": (function("conditional", BOOL, A, A, result=A),),
    "_&&_": (function("logical_and", BOOL, BOOL, result=BOOL),),
    "_||_": (function("logical_or", BOOL, BOOL, result=BOOL),),
    "!_": (function("logical_not", BOOL, result=BOOL),),
    "@not_strictly_false": (function("not_strictly_false", BOOL, result=BOOL),),
    "_==_": (function("equals", A, A, result=BOOL),),
    "_!=_": (function("not_equals", A, A, result=BOOL),),
    "_+_": (
        function("add_bytes", BYTES, BYTES, result=BYTES),
        function("add_double", DOUBLE, DOUBLE, result=DOUBLE),
        function("add_duration_duration", DURATION, DURATION, result=DURATION),
        function("add_duration_timestamp", DURATION, TIMESTAMP, result=TIMESTAMP),
        function("add_timestamp_duration", TIMESTAMP, DURATION, result=TIMESTAMP),
        function("add_int64", INT, INT, result=INT),
        function("add_list", _LIST, _LIST, result=_LIST),
        function("add_string", STRING, STRING, result=STRING),
        function("add_uint64", UINT, UINT, result=UINT),
    ),
    "_/_": _arithmetic("divide", {"double": DOUBLE, "int64": INT, "uint64": UINT}),
    "_%_": _arithmetic("modulo", {"int64": INT, "uint64": UINT}),
    "_*_": _arithmetic("multiply", {"double": DOUBLE, "int64": INT, "uint64": UINT}),
    "-_": (function("negate_double", DOUBLE, result=DOUBLE), function("negate_int64", INT, result=INT)),
    "_-_": (
        function("subtract_double", DOUBLE, DOUBLE, result=DOUBLE),
        function("subtract_duration_duration", DURATION, DURATION, result=DURATION),
        function("subtract_int64", INT, INT, result=INT),
        function("subtract_timestamp_duration", TIMESTAMP, DURATION, result=TIMESTAMP),
        function("subtract_timestamp_timestamp", TIMESTAMP, TIMESTAMP, result=DURATION),
        function("subtract_uint64", UINT, UINT, result=UINT),
    ),
    "_<_": _comparison("less"),
    "_<=_": _comparison("less_equals"),
    "_>_": _comparison("greater"),
    "_>=_": _comparison("greater_equals"),
    "_[_]": (function("index_list", _LIST, INT, result=A), function("index_map", _MAP, A, result=B)),
    "@in": (function("in_list", A, _LIST, result=BOOL), function("in_map", A, _MAP, result=BOOL)),
}

_CONVERSIONS: Library = {
    "type": (function("type", A, result=type_of(A)),),
    "bool": _conversion(BOOL, bool_to_bool=BOOL, string_to_bool=STRING),
    "bytes": _conversion(BYTES, bytes_to_bytes=BYTES, string_to_bytes=STRING),
    "double": _conversion(
        DOUBLE, double_to_double=DOUBLE, int64_to_double=INT, string_to_double=STRING, uint64_to_double=UINT
    ),
    "duration": _conversion(DURATION, duration_to_duration=DURATION, string_to_duration=STRING),
    "dyn": (function("to_dyn", A, result=DYN),),
    "int": _conversion(
        INT,
        int64_to_int64=INT,
        double_to_int64=DOUBLE,
        duration_to_int64=DURATION,
        string_to_int64=STRING,
        timestamp_to_int64=TIMESTAMP,
        uint64_to_int64=UINT,
    ),
    "string": _conversion(
        STRING,
        string_to_string=STRING,
        bool_to_string=BOOL,
        bytes_to_string=BYTES,
        double_to_string=DOUBLE,
        duration_to_string=DURATION,
        int64_to_string=INT,
        timestamp_to_string=TIMESTAMP,
        uint64_to_string=UINT,
    ),
    "timestamp": _conversion(
        TIMESTAMP, timestamp_to_timestamp=TIMESTAMP, int64_to_timestamp=INT, string_to_timestamp=STRING
    ),
    "uint": _conversion(
        UINT, uint64_to_uint64=UINT, double_to_uint64=DOUBLE, int64_to_uint64=INT, string_to_uint64=STRING
    ),
}


def _calendar(identifier: str, with_zone: str = "", duration: str = "") -> tuple[Overload, ...]:
    """A part of a point in time, in UTC or in a named zone; some also of a duration."""
    found = [
        method(identifier, TIMESTAMP, result=INT),
        method(with_zone or f"{identifier}_with_tz", TIMESTAMP, STRING, result=INT),
    ]
    if duration:
        found.append(method(duration, DURATION, result=INT))
    return tuple(found)


_TIME: Library = {
    "getFullYear": _calendar("timestamp_to_year"),
    "getMonth": _calendar("timestamp_to_month"),
    "getDayOfYear": _calendar("timestamp_to_day_of_year"),
    "getDayOfMonth": _calendar("timestamp_to_day_of_month"),
    "getDate": _calendar("timestamp_to_day_of_month_1_based"),
    "getDayOfWeek": _calendar("timestamp_to_day_of_week"),
    "getHours": _calendar("timestamp_to_hours", duration="duration_to_hours"),
    "getMinutes": _calendar("timestamp_to_minutes", duration="duration_to_minutes"),
    "getSeconds": _calendar("timestamp_to_seconds", "timestamp_to_seconds_tz", "duration_to_seconds"),
    "getMilliseconds": _calendar("timestamp_to_milliseconds", duration="duration_to_milliseconds"),
}

FUNCTIONS: Library = {
    **_OPERATORS,
    **_CONVERSIONS,
    **_TIME,
    "size": (
        function("size_bytes", BYTES, result=INT),
        method("bytes_size", BYTES, result=INT),
        function("size_list", _LIST, result=INT),
        method("list_size", _LIST, result=INT),
        function("size_map", _MAP, result=INT),
        method("map_size", _MAP, result=INT),
        function("size_string", STRING, result=INT),
        method("string_size", STRING, result=INT),
    ),
    "contains": (method("contains_string", STRING, STRING, result=BOOL),),
    "endsWith": (method("ends_with_string", STRING, STRING, result=BOOL),),
    "startsWith": (method("starts_with_string", STRING, STRING, result=BOOL),),
    "matches": (
        function("matches", STRING, STRING, result=BOOL),
        method("matches_string", STRING, STRING, result=BOOL),
    ),
}
