"""Frozen values as JSON data by their type hints, for records on the disk.

A new field needs no line here. Fields at their defaults are left out. A field that a newer version wrote is skipped;
any other content of the wrong form is an error that names the field, since half a value would be a wrong one.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING
from functools import cache
from typing import Any, TypeVar

from node.files import JsonValue
from node.values import Value

Made = TypeVar("Made", bound=Value)


def to_data(value: Value) -> dict[str, JsonValue]:
    """The value as a JSON object; for fields that are texts, numbers, truths, values, or tuples of these."""
    made: dict[str, JsonValue] = {}
    for name, _, default in value.__stores__:
        content = getattr(value, name)
        if default is MISSING or content != default:
            made[name] = _plain(content)
    return made


def from_data(kind: type[Made], data: JsonValue) -> Made:
    """The value from which ``to_data`` made this data. Raises ValueError."""
    made = _made(kind, data)
    assert isinstance(made, kind)
    return made


def _made(kind: type, data: JsonValue) -> object:
    if not isinstance(data, dict):
        raise ValueError(f"{kind.__name__} is not an object")  # noqa: TRY004 - one exception for all that is malformed
    hints = _hints(kind)
    given = {name: _typed(hints[name], content, name) for name, content in data.items() if name in hints}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _plain(content: object) -> JsonValue:
    if isinstance(content, tuple):
        return [_plain(item) for item in content]
    if isinstance(content, Value):
        return to_data(content)
    assert content is None or isinstance(content, str | int | float)
    return content


def _typed(hint: Any, data: JsonValue, name: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _tuple(arguments, data, name)
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        return _typed(next(each for each in arguments if each is not type(None)), data, name)
    if isinstance(hint, type) and issubclass(hint, Value):
        return _made(hint, data)
    if type(data) is not hint:  # Exactly: a truth is no number here.
        raise ValueError(f"{name} must be of type {hint.__name__}, not {type(data).__name__}")
    return data


def _tuple(arguments: tuple[Any, ...], data: JsonValue, name: str) -> tuple[object, ...]:
    """A tuple of any length (``tuple[str, ...]``), or of these types in their order (``tuple[str, bool]``)."""
    if not isinstance(data, list):
        raise ValueError(f"{name} is not a list")  # noqa: TRY004 - as above
    kinds = arguments[:1] * len(data) if arguments[-1] is Ellipsis else arguments
    if len(kinds) != len(data):
        raise ValueError(f"{name} does not have {len(kinds)} items")
    return tuple([_typed(kind, item, name) for kind, item in zip(kinds, data, strict=True)])
