"""Frozen values as JSON data and back, for records that hold raw facts.

Generic over the values' type hints: a new field is kept without a line here. Fields at their defaults are left out. A
field that a newer version wrote is passed over; anything else that has not the right form is an error, since half a
value would be a wrong one.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

from node.files import JsonValue
from node.values import Value

Made = TypeVar("Made", bound=Value)


def to_data(value: Value) -> JsonValue:
    """The value as a JSON object; for fields that are texts, whole numbers, truths, values, or tuples of these."""
    made: dict[str, JsonValue] = {}
    for each in fields(value):  # type: ignore[arg-type]  # every Value is a dataclass, its base alone is not
        content = getattr(value, each.name)
        if each.default is MISSING or content != each.default:
            made[each.name] = _plain(content)
    return made


def from_data(kind: type[Made], data: JsonValue) -> Made:
    """The value that ``to_data`` made this data of. Raises ValueError."""
    made = _made(kind, data)
    assert isinstance(made, kind)
    return made


def _made(kind: type, data: JsonValue) -> object:
    if not isinstance(data, dict):
        raise ValueError(f"{kind.__name__} is no object")  # noqa: TRY004 - one exception for all that is malformed
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
    assert content is None or isinstance(content, str | int)
    return content


def _typed(hint: Any, data: JsonValue, name: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{name} is no list")
        return tuple([_typed(arguments[0], item, name) for item in data])
    if origin in (types.UnionType, typing.Union):
        if data is None:
            return None
        return _typed(next(each for each in arguments if each is not type(None)), data, name)
    if isinstance(hint, type) and issubclass(hint, Value):
        return _made(hint, data)
    if type(data) is not hint:  # Exactly: a truth is no number here.
        raise ValueError(f"{name} is no {hint.__name__}")
    return data
