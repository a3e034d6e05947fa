"""The types of CEL, as the checker knows them.

A type is a value: a kind, a name and parameters. `DYN` agrees with everything; `ANY` is what Kubernetes gives the
values of attributes while list attributes are off (it agrees with everything too, and differs only in the type of a
result). Types of Kubernetes' own (`kubernetes.Quantity`, `kubernetes.Semver`, ...) are opaque ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
UINT_MAX = 2**64 - 1


class TypeKind(Enum):
    """The kind of a type."""

    NULL = "null_type"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    TIMESTAMP = "google.protobuf.Timestamp"
    DURATION = "google.protobuf.Duration"
    DYN = "dyn"
    ANY = "google.protobuf.Any"
    ERROR = "*error*"
    LIST = "list"
    MAP = "map"
    TYPE = "type"
    STRUCT = "struct"  # a message: the device
    OPAQUE = "opaque"  # named, with parameters: optional_type, kubernetes.Quantity, ...
    PARAMETER = "type_param"  # stands for any one type in a declaration


@dataclass(frozen=True, slots=True)
class Type:
    """One type. `name` is the kind's value except for messages, opaque types and parameters, which have their own.

    `nullable`: the type of a message that wraps one value (`google.protobuf.Int64Value`), which may be compared with
    null and is the wrapped type in every other respect.
    """

    kind: TypeKind
    name: str
    parameters: tuple[Type, ...] = ()
    nullable: bool = False

    def __str__(self) -> str:
        """As the compiler's messages show it: `list(int)`, `map(string, dyn)`, `wrapper(int)`."""
        if self.nullable:
            return f"wrapper({self.name})"
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(str(each) for each in self.parameters)})"


def _simple(kind: TypeKind) -> Type:
    return Type(kind, kind.value)


NULL = _simple(TypeKind.NULL)
BOOL = _simple(TypeKind.BOOL)
INT = _simple(TypeKind.INT)
UINT = _simple(TypeKind.UINT)
DOUBLE = _simple(TypeKind.DOUBLE)
STRING = _simple(TypeKind.STRING)
BYTES = _simple(TypeKind.BYTES)
TIMESTAMP = _simple(TypeKind.TIMESTAMP)
DURATION = _simple(TypeKind.DURATION)
DYN = _simple(TypeKind.DYN)
ANY = _simple(TypeKind.ANY)
ERROR = _simple(TypeKind.ERROR)


def wrapper_of(of: Type) -> Type:
    """The type of a message that wraps one value of a simple type."""
    return Type(of.kind, of.name, nullable=True)


def list_of(element: Type) -> Type:
    """`list(element)`."""
    return Type(TypeKind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(TypeKind.MAP, "map", (key, value))


def type_of(of: Type) -> Type:
    """The type of a type, such as that of `int` or `type(x)`."""
    return Type(TypeKind.TYPE, "type", (of,))


def message(name: str) -> Type:
    """A message type."""
    return Type(TypeKind.STRUCT, name)


def opaque(name: str, *parameters: Type) -> Type:
    """A type of an extension."""
    return Type(TypeKind.OPAQUE, name, parameters)


def optional_of(of: Type) -> Type:
    """`optional_type(of)`."""
    return opaque("optional_type", of)


def parameter(name: str) -> Type:
    """A type parameter of a declaration."""
    return Type(TypeKind.PARAMETER, name)


QUANTITY = opaque("kubernetes.Quantity")
SEMVER = opaque("kubernetes.Semver")
URL = opaque("kubernetes.URL")
IP = opaque("net.IP")
CIDR = opaque("net.CIDR")
NAMED_FORMAT = opaque("kubernetes.NamedFormat")
DEVICE = message("kubernetes.DRADevice")
