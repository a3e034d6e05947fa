"""Reads the values of parameters' fields: texts, truths, numbers, objects and lists, each with an error that names it.

Pure. ``refusal`` makes the error for a field below the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from driver.parameters.errors import LONGEST, ParameterError, shown, shown_key
from kube.bodies import Json, JsonObject

Refusal = Callable[[str, str, str], ParameterError]
"""Makes the error that a field (below the parameters) holds a wrong value, with the fix."""

_Found = TypeVar("_Found")


def text_of(refusal: Refusal, field: str, content: Json, fix: str) -> str:
    """A text."""
    if not isinstance(content, str):
        raise refusal(field, f"{shown(content)} is not a text", fix)
    return content


def truth_of(refusal: Refusal, field: str, content: Json) -> bool:
    """True or false."""
    if not isinstance(content, bool):
        raise refusal(field, f"{shown(content)} is neither true nor false", "write true or false")
    return content


def number_of(refusal: Refusal, field: str, content: Json, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(content, bool) or not isinstance(content, int) or not least <= content <= most:
        fix = f"write a whole number from {least} to {most}"
        raise refusal(field, f"{shown(content)} is out of range", fix)
    return content


def object_of(refusal: Refusal, field: str, content: Json, names: Collection[str], whose: str) -> JsonObject:
    """An object with these fields alone."""
    if not isinstance(content, dict):
        raise refusal(field, f"{shown(content)} is not an object", f"write an object with {', '.join(names)}")
    for key in content:
        if key not in names:
            raise unknown_field(refusal, f"{field}.{shown_key(key)}" if field else shown_key(key), key, names, whose)
    return content


def unknown_field(refusal: Refusal, field: str, key: str, names: Collection[str], whose: str) -> ParameterError:
    """The error about a field that does not exist."""
    import difflib  # Here and not above: only a mistake needs it.

    close = difflib.get_close_matches(key[:LONGEST], names, n=1)
    fix = f"did you mean {close[0]}?" if close else f"it has {', '.join(names)}"
    return refusal(field, f"{whose} has no such field", fix)


def list_of(
    refusal: Refusal, field: str, content: Json, item: Callable[[Refusal, str, Json], _Found], *, most: int, what: str
) -> tuple[_Found, ...]:
    """A list of at most ``most`` different items, each read by ``item``; ``what``: they are, for messages."""
    if not isinstance(content, list):
        raise refusal(field, f"{shown(content)} is not a list", f"write a list of {what}")
    if len(content) > most:
        raise refusal(field, f"it has {len(content)} {what}", f"write at most {most}")
    found: list[_Found] = []
    for index, each in enumerate(content):
        made = item(refusal, f"{field}[{index}]", each)
        if made in found:
            raise refusal(f"{field}[{index}]", f"{shown(each)} is listed twice", "write it once")
        found.append(made)
    return tuple(found)
