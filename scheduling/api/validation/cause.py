"""One fault of an object (its place, kind and words), and the rules for lists and mappings.

Fields are written as the API server writes them (`spec.devices[0].attributes[a].string`) and reasons are its words, so
that a fault found here can be compared with one found there. Messages are our own: they name the value and the fix.

A list or mapping that is too large is not looked into: its one fault is its size, so that a hostile object costs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

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
class StatusCause:
    """`field`: path in the object; `reason`: one of the API server's cause types; `message`: value and fix in words."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        """Field and message in one line."""
        return f"{self.field}: {self.message}"


def invalid(field: str, value: object, fix: str) -> StatusCause:
    """The value breaks a rule; `fix` says the rule, as in "must be …"."""
    return StatusCause(field, INVALID, f"{shown(value)} {fix}")


def required(field: str, fix: str = "must be set") -> StatusCause:
    """A value is missing."""
    return StatusCause(field, REQUIRED, fix)


def forbidden(field: str, fix: str) -> StatusCause:
    """A value must not be there."""
    return StatusCause(field, FORBIDDEN, fix)


def duplicate(field: str, value: object) -> StatusCause:
    """The value is there a second time."""
    return StatusCause(field, DUPLICATE, f"{shown(value)} occurs before; remove one of the two")


def not_supported(field: str, value: object, choices: Iterable[str]) -> StatusCause:
    """The value is not in a closed set."""
    return StatusCause(field, NOT_SUPPORTED, f"{shown(value)} is unknown; use one of {', '.join(choices)}")


def too_long(field: str, length: int, limit: int) -> StatusCause:
    """A text or raw JSON has more bytes than the limit."""
    return StatusCause(field, TOO_LONG, f"has {length} bytes, at most {limit} are allowed")


def too_many(field: str, count: int, limit: int) -> StatusCause:
    """A list or mapping has more entries than the limit."""
    return StatusCause(field, TOO_MANY, f"has {count} entries, at most {limit} are allowed")


def each_invalid(field: str, value: object, faults: Iterable[str]) -> Iterator[StatusCause]:
    """One `invalid` for each fault of a value."""
    return (invalid(field, value, fault) for fault in faults)


T = TypeVar("T")
Rule = Callable[[T, str], Iterator[StatusCause]]
"""Judges an entry at a path."""


def listed(entries: Sequence[T], limit: int | None, path: str, rule: Rule[T]) -> Iterator[StatusCause]:
    """Judge the size of a list, then each entry. `limit` None: any size."""
    if limit is not None and len(entries) > limit:
        yield too_many(path, len(entries), limit)
        return
    for index, entry in enumerate(entries):
        yield from rule(entry, f"{path}[{index}]")


def distinct(
    entries: Sequence[T], limit: int | None, path: str, rule: Rule[T], key: Callable[[T], Hashable]
) -> Iterator[StatusCause]:
    """Judge as `listed` does, and that no two entries have the same key."""
    yield from listed(entries, limit, path, rule)
    if limit is not None and len(entries) > limit:
        return
    yield from repeated(entries, path, key)


def repeated(entries: Sequence[T], path: str, key: Callable[[T], Hashable], field: str = "") -> Iterator[StatusCause]:
    """Judge that no two entries have the same key; the path of one that does ends in `field`."""
    seen: set[Hashable] = set()
    for index, entry in enumerate(entries):
        name = key(entry)
        if name in seen:
            yield duplicate(f"{path}[{index}]{field}", name)
        seen.add(name)


def mapped(
    entries: Mapping[str, T], limit: int | None, path: str, name_rule: Rule[str], rule: Rule[T], *, shown_bytes: int
) -> Iterator[StatusCause]:
    """Judge the size of a mapping, then each name (at the path of the mapping) and each value.

    In the path of a value, a name of more than `shown_bytes` bytes has its middle replaced by an ellipsis.
    """
    if limit is not None and len(entries) > limit:
        yield too_many(path, len(entries), limit)
        return
    for name, entry in entries.items():
        yield from name_rule(name, path)
        yield from rule(entry, f"{path}[{_shortened(name, shown_bytes)}]")


def _shortened(name: str, limit: int) -> str:
    raw = name.encode(errors="surrogatepass")
    if len(raw) <= limit:
        return name
    kept = limit - len("...")
    return (raw[: (kept + 1) // 2] + b"..." + raw[len(raw) - kept // 2 :]).decode(errors="replace")


def anything(_entry: object, _path: str) -> Iterator[StatusCause]:
    """A rule that finds nothing."""
    return iter(())
