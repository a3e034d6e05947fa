"""Rules for the attributes of a device (KEP-4381, lists KEP-5491)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.labels import size
from scheduling.api.validation.cause import Cause, invalid, too_long

_VALUE_BYTES: Final = 64
_SCALARS: Final = ("int", "bool", "string", "version")
LISTS: Final = ("ints", "bools", "strings", "versions")
"""Fields of list attributes (KEP-5491)."""

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRE_RELEASE: Final = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
)
"""A version by semver.org 2.0.0."""

Attribute = Mapping[str, Any]


def values_in(attribute: Attribute) -> int:
    """Return how many values an attribute counts for: the entries of its lists, or one."""
    return sum(len(attribute.get(field, [])) for field in LISTS) or 1


def attribute(entry: Attribute, path: str) -> Iterator[Cause]:
    """An attribute: exactly one value, or one list of at least one."""
    chosen = [field for field in (*_SCALARS, *LISTS) if field in entry]
    for field in chosen:
        if field in LISTS and not entry[field]:
            yield invalid(f"{path}.{field}", entry[field], "must be left out or have a value")
    if "string" in entry:
        yield from _text(entry["string"], f"{path}.string")
    if "version" in entry:
        yield from _version(entry["version"], f"{path}.version")
    for index, text in enumerate(entry.get("strings", [])):
        yield from _text(text, f"{path}.strings[{index}]")
    for index, text in enumerate(entry.get("versions", [])):
        yield from _version(text, f"{path}.versions[{index}]")
    if len(chosen) != 1:
        yield invalid(path, chosen, f"are set; set exactly one of {', '.join((*_SCALARS, *LISTS))}")


def _text(text: str, path: str) -> Iterator[Cause]:
    if size(text) > _VALUE_BYTES:
        yield too_long(path, size(text), _VALUE_BYTES)


def _version(text: str, path: str) -> Iterator[Cause]:
    if not _VERSION.fullmatch(text):
        yield invalid(path, text, "must be a version by semver.org 2.0.0, such as 1.2.3 or 1.2.3-rc.1")
    yield from _text(text, path)
