"""Types of fields: what the API server's decoder accepts, what it writes back, and when two values are the same.

Invariants: a decoded object is a tree of plain dicts and lists in which absent fields and nulls are missing, unknown
fields are gone, and quantities are `Quantity`; an empty list or mapping that was written stays, because some rules
tell it from none. The trade-off: types are data, not classes, so that one small walker each serves reading, writing
and comparing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Scalar(Enum):
    """A type without parts; the value says in words what is accepted."""

    TEXT = "a text"
    INTEGER = "a whole number of 64 bits"
    FLAG = "true or false"
    QUANTITY = "a quantity such as 500m or 8Gi"
    TIME = "a time in the form of RFC 3339, such as 2026-01-31T12:00:00Z"
    RAW = "plain JSON: no dates, no not-a-number, no loops, at most 200 levels deep"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with names of the user's choice."""

    item: Type


@dataclass(frozen=True, slots=True)
class Shape:
    """A mapping with fixed fields."""

    fields: Mapping[str, Field]


Type = Scalar | ListOf | MapOf | Shape


class Written(Enum):
    """When the API server writes a field."""

    ALWAYS = "always"  # absence is written as the zero value: "", 0, null for lists and pointers
    FILLED = "filled"  # unless it holds the zero value, or nothing
    SET = "set"  # if it was set, whatever it holds


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a shape. A pointer tells "absent" from the zero value."""

    type: Type
    written: Written
    pointer: bool = False


TEXT, INTEGER, FLAG = Scalar.TEXT, Scalar.INTEGER, Scalar.FLAG
QUANTITY, TIME, RAW = Scalar.QUANTITY, Scalar.TIME, Scalar.RAW


def always(type_: Type) -> Field:
    """A field that is written even if it holds nothing."""
    return Field(type_, Written.ALWAYS)


def filled(type_: Type) -> Field:
    """A field that is written if it holds something."""
    return Field(type_, Written.FILLED)


def pointer(type_: Type) -> Field:
    """A field that is written if it was set."""
    return Field(type_, Written.SET, pointer=True)


def zero(type_: Type) -> object:
    """What an absent value of a type is: "", 0, false, no entries; None where there is none."""
    if isinstance(type_, Shape | MapOf):
        return {}
    if isinstance(type_, ListOf):
        return []
    return {TEXT: "", INTEGER: 0, FLAG: False}.get(type_)
