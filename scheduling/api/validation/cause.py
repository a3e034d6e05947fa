"""One fault of an object: where, of which sort, and in words.

Fields are written as the API server writes them (`spec.devices[0].attributes[a].string`) and reasons are its words, so
that a fault found here can be laid beside one found there. Messages are our own: they name the value and the fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from scheduling.api.excerpts import shown

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
DUPLICATE: Final = "FieldValueDuplicate"
FORBIDDEN: Final = "FieldValueForbidden"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
NOT_FOUND: Final = "FieldValueNotFound"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
INTERNAL: Final = "InternalError"


@dataclass(frozen=True, slots=True)
class Cause:
    """`field`: path in the object; `reason`: one of the API server's cause types; `message`: value and fix in words."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        """Field and message in one line."""
        return f"{self.field}: {self.message}"


def invalid(field: str, value: object, fix: str) -> Cause:
    """The value breaks a rule; `fix` says the rule, as in "must be …"."""
    return Cause(field, INVALID, f"{shown(value)} {fix}")


def required(field: str, fix: str = "must be set") -> Cause:
    """A value is missing."""
    return Cause(field, REQUIRED, fix)


def forbidden(field: str, fix: str) -> Cause:
    """A value must not be there."""
    return Cause(field, FORBIDDEN, fix)


def duplicate(field: str, value: object) -> Cause:
    """The value is there a second time."""
    return Cause(field, DUPLICATE, f"{shown(value)} occurs before; remove one of the two")


def not_supported(field: str, value: object, choices: Iterable[str]) -> Cause:
    """The value is none of a closed set."""
    return Cause(field, NOT_SUPPORTED, f"{shown(value)} is unknown; use one of {', '.join(choices)}")


def too_long(field: str, length: int, limit: int) -> Cause:
    """A text or raw JSON has more bytes than the limit."""
    return Cause(field, TOO_LONG, f"has {length} bytes, at most {limit} are allowed")


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list or mapping has more entries than the limit."""
    return Cause(field, TOO_MANY, f"has {count} entries, at most {limit} are allowed")


def each_invalid(field: str, value: object, faults: Iterable[str]) -> Iterator[Cause]:
    """One `invalid` for each fault of a value."""
    return (invalid(field, value, fault) for fault in faults)
