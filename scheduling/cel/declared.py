"""Types that expressions can name, and the fields of those that are messages.

Beside the device these are the well-known types of protocol buffers, which every CEL environment has. Kubernetes' own
types have no name in an expression, except those of addresses and networks.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.cel.types import (
    ANY,
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Kind,
    Type,
    list_of,
    map_of,
    message,
    optional_of,
    parameter,
    wrapper_of,
)

JSON_LIST = list_of(DYN)
JSON_OBJECT = map_of(STRING, DYN)

_WRAPPERS = {
    "google.protobuf.BoolValue": BOOL,
    "google.protobuf.BytesValue": BYTES,
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.FloatValue": DOUBLE,
    "google.protobuf.Int64Value": INT,
    "google.protobuf.Int32Value": INT,
    "google.protobuf.UInt64Value": UINT,
    "google.protobuf.UInt32Value": UINT,
    "google.protobuf.StringValue": STRING,
}

NAMED_TYPES: Mapping[str, Type] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "google.protobuf.Duration": DURATION,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "string": STRING,
    "timestamp": TIMESTAMP,
    "google.protobuf.Timestamp": TIMESTAMP,
    "type": Type(Kind.TYPE, "type"),
    "uint": UINT,
    "optional_type": optional_of(parameter("V")),
    "net.IP": IP,
    "net.CIDR": CIDR,
    "google.protobuf.Any": ANY,
    "google.protobuf.Empty": message("google.protobuf.Empty"),
    "google.protobuf.ListValue": JSON_LIST,
    "google.protobuf.Struct": JSON_OBJECT,
    "google.protobuf.Value": DYN,
    **{name: wrapper_of(of) for name, of in _WRAPPERS.items()},
}

_SECONDS: Mapping[str, Type] = {"seconds": INT, "nanos": INT}

MESSAGES: Mapping[str, Mapping[str, Type]] = {
    "google.protobuf.Any": {"type_url": STRING, "value": BYTES},
    "google.protobuf.Duration": _SECONDS,
    "google.protobuf.Timestamp": _SECONDS,
    "google.protobuf.Empty": {},
    "google.protobuf.ListValue": {"values": JSON_LIST},
    "google.protobuf.Struct": {"fields": JSON_OBJECT},
    "google.protobuf.Value": {
        "null_value": INT,
        "number_value": DOUBLE,
        "string_value": STRING,
        "bool_value": BOOL,
        "struct_value": JSON_OBJECT,
        "list_value": JSON_LIST,
    },
    "list": {"values": JSON_LIST},  # the one type of the language itself that can be written as a message
    **{name: {"value": of} for name, of in _WRAPPERS.items()},
}
"""Fields that a literal of a message may set."""

CONSTANTS: Mapping[str, int] = {"google.protobuf.NullValue.NULL_VALUE": 0}
"""Names of numbers."""
