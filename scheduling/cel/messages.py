"""Messages that an expression makes: the well-known types of protocol buffers, which become plain values at once.

`google.protobuf.Int64Value{value: 5}` is the int 5, a `Struct` is a map with values as JSON has them, and so on. Only
`Empty` stays a message. Fields narrower than CEL's types are checked for overflow.

The types that expressions can name are declared here as well. Kubernetes' own types have no name in an expression,
except those of addresses and networks; the device is declared by the environment.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import copysign, inf
from typing import ClassVar

from scheduling.cel.library.conversions import duration_text
from scheduling.cel.library.times import SECOND, timestamp_text
from scheduling.cel.relations import unmap_key
from scheduling.cel.types import (
    ANY,
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    INT_MAX,
    INT_MIN,
    IP,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    TypeKind,
    list_of,
    map_of,
    message,
    optional_of,
    parameter,
    wrapper_of,
)
from scheduling.cel.values import (
    CelFault,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    TooExpensive,
    Unsigned,
    Value,
    elements,
    is_list,
    is_map,
    spend,
    type_name,
)

_JSON_SAFE = 2**53 - 1
_DEEPEST = 100

Fields = Mapping[str, Value]


class Empty(Opaque):
    """`google.protobuf.Empty{}`."""

    __slots__ = ()
    cel_type: ClassVar[Type] = message("google.protobuf.Empty")

    def cel_equal(self, other: Value) -> bool:
        """All are equal."""
        return type(other) is Empty


def make(name: str, fields: Fields) -> Value:
    """The value of a message. Raises CelFault for types that cannot be made and for fields that do not fit."""
    known = _WELL_KNOWN.get(name)
    if known is None:
        raise CelFault(f"unknown type '{name}'")
    return known.make(fields)


def _field(fields: Fields, name: str, default: Value) -> Value:
    """A field of a scalar or container type. Raises CelFault for a value of another type than the default's."""
    if name not in fields:
        return default
    value = fields[name]
    while type(value) is Optional and value.present:
        value = value.get()
    if type_name(value) != type_name(default):
        raise CelFault(f"field {name}: unsupported conversion from {type_name(value)} to {type_name(default)}")
    return value


@dataclass(frozen=True, slots=True)
class _Message:
    """A well-known type: the type of its values, the fields that a literal may set, and how to make the value."""

    type: Type
    fields: Mapping[str, Type]
    make: Callable[[Fields], Value]


def _wrapper(of: Type, default: Value, convert: Callable[[Value], Value] = lambda value: value) -> _Message:
    return _Message(wrapper_of(of), {"value": of}, lambda fields: convert(_field(fields, "value", default)))


def _json(of: Type, field: str, default: Value) -> _Message:
    return _Message(of, {field: of}, lambda fields: as_json(_field(fields, field, default)))


def _int32(value: Value) -> Value:
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise CelFault("integer overflow")
    return value


def _uint32(value: Value) -> Value:
    if not isinstance(value, int) or not 0 <= value < 2**32:
        raise CelFault("unsigned integer overflow")
    return value


def _single(value: Value) -> Value:
    """A double rounded to 32 bits."""
    assert isinstance(value, float)
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return copysign(inf, value)


def _nanoseconds(fields: Fields) -> int:
    seconds, rest = _field(fields, "seconds", 0), _int32(_field(fields, "nanos", 0))
    assert isinstance(seconds, int)
    assert isinstance(rest, int)
    return seconds * SECOND + rest


_KINDS: Mapping[str, Value] = {
    "bool_value": False,
    "number_value": 0.0,
    "string_value": "",
    "struct_value": {},
    "list_value": [],
}


def _value(fields: Fields) -> Value:
    """The value of the one field that is set; of more than one, cel-go takes any."""
    found: Value = None
    for name in fields:
        if name == "null_value":
            _int32(_field(fields, name, 0))  # a number of an enumeration, whatever number
            found = None
        else:
            found = as_json(_field(fields, name, _KINDS[name]))
    return found


def _no_any(_fields: Fields) -> Value:
    raise CelFault("unsupported conversion of a google.protobuf.Any")


def as_json(value: Value, depth: int = 0) -> Value:
    """The value as JSON has it: a number is a double, or a text where a double is too coarse. Raises CelFault."""
    spend(1)
    if depth > _DEEPEST:
        raise TooExpensive
    while type(value) is Optional:
        value = value.get()
    if is_list(value):
        return [as_json(each, depth + 1) for each in elements(value)]
    if is_map(value):
        return _object(value, depth)
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return float(value) if abs(value) <= _JSON_SAFE else str(int(value))
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    raise CelFault(f"type conversion error from '{type_name(value)}' to JSON")


def _object(value: Value, depth: int) -> Value:
    made: dict[object, Value] = {}
    for stored, each in value.items():  # type: ignore[attr-defined]
        key = unmap_key(stored)
        if not isinstance(key, str):
            raise CelFault(f"type conversion error from '{type_name(key)}' to 'string'")
        made[key] = as_json(each, depth + 1)
    return made


NAMED = frozenset(
    (
        *("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "optional_type"),
        *("google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.Empty", "net.IP", "net.CIDR"),
    )
)
"""Types whose names are values. The checker knows more, but cel-go fails to find them when it plans."""


_JSON_LIST = list_of(DYN)
_JSON_OBJECT = map_of(STRING, DYN)
_SECONDS: Mapping[str, Type] = {"seconds": INT, "nanos": INT}
_ONE_OF: Mapping[str, Type] = {
    "null_value": INT,
    "number_value": DOUBLE,
    "string_value": STRING,
    "bool_value": BOOL,
    "struct_value": _JSON_OBJECT,
    "list_value": _JSON_LIST,
}
_WELL_KNOWN = {
    "google.protobuf.Any": _Message(ANY, {"type_url": STRING, "value": BYTES}, _no_any),
    "google.protobuf.BoolValue": _wrapper(BOOL, False),
    "google.protobuf.BytesValue": _wrapper(BYTES, b""),
    "google.protobuf.DoubleValue": _wrapper(DOUBLE, 0.0),
    "google.protobuf.Duration": _Message(
        DURATION, _SECONDS, lambda fields: Duration(max(INT_MIN, min(INT_MAX, _nanoseconds(fields))))
    ),
    "google.protobuf.Empty": _Message(Empty.cel_type, {}, lambda _fields: Empty()),
    "google.protobuf.FloatValue": _wrapper(DOUBLE, 0.0, _single),
    "google.protobuf.Int32Value": _wrapper(INT, 0, _int32),
    "google.protobuf.Int64Value": _wrapper(INT, 0),
    "google.protobuf.ListValue": _json(_JSON_LIST, "values", []),
    "google.protobuf.StringValue": _wrapper(STRING, ""),
    "google.protobuf.Struct": _json(_JSON_OBJECT, "fields", {}),
    "google.protobuf.Timestamp": _Message(TIMESTAMP, _SECONDS, lambda fields: Timestamp(_nanoseconds(fields))),
    "google.protobuf.UInt32Value": _wrapper(UINT, Unsigned(0), _uint32),
    "google.protobuf.UInt64Value": _wrapper(UINT, Unsigned(0)),
    "google.protobuf.Value": _Message(DYN, _ONE_OF, _value),
}

NAMED_TYPES: Mapping[str, Type] = {
    **{each.name: each for each in (BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, IP, CIDR)},
    **{each.name: each for each in (list_of(DYN), map_of(DYN, DYN), optional_of(parameter("V")))},
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "type": Type(TypeKind.TYPE, "type"),
    **{name: each.type for name, each in _WELL_KNOWN.items()},
}

MESSAGES: Mapping[str, Mapping[str, Type]] = {
    "list": {"values": _JSON_LIST},  # the one type of the language itself that can be written as a message
    **{name: each.fields for name, each in _WELL_KNOWN.items()},
}
"""Fields that a literal of a message may set."""

CONSTANTS: Mapping[str, int] = {"google.protobuf.NullValue.NULL_VALUE": 0}
"""The numbers of names."""
