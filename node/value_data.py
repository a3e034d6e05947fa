"""Frozen values as JSON data by their type hints, for records on the disk.

A new field needs no line here. Fields at their defaults are left out. A field that a newer version wrote is skipped;
any other content of the wrong form is an error that names the field, since half a value would be a wrong one.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable
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
    given = {}
    for name, content in data.items():
        reader = _field_reader(kind, name)
        if reader is not None:
            given[name] = reader(content, name)
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


Reader = Callable[[JsonValue, str], object]
"""Makes a field's content of its data, or raises ValueError, which names the field."""


@cache
def _field_reader(kind: type, name: str) -> Reader | None:
    """The reader of a field, None if the class has no such field.

    Each hint is looked up once, since records have hundreds of values, and only if a record has the field: evaluating
    all hints of the classes takes 2 ms of the agent's start.
    """
    for base in kind.__mro__:
        hint = getattr(base, "__annotations__", {}).get(name)
        if hint is not None:
            return _hint_reader(hint, base.__module__)
    return None


@cache
def _hint_reader(hint: Any, module: str) -> Reader:
    """The reader for a hint as it is written in a module."""
    return _reader(eval(hint, vars(sys.modules[module])) if isinstance(hint, str) else hint)  # noqa: S307 - our own hints


def _plain(content: object) -> JsonValue:
    if isinstance(content, tuple):
        return [_plain(item) for item in content]
    if isinstance(content, Value):
        return to_data(content)
    assert content is None or isinstance(content, str | int | float)
    return content


def _reader(hint: Any) -> Reader:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin in (types.UnionType, typing.Union):
        given = _reader(next(each for each in arguments if each is not type(None)))
        return lambda data, name: None if data is None else given(data, name)
    if isinstance(hint, type) and issubclass(hint, Value):
        return lambda data, _: _made(hint, data)

    def exact(data: JsonValue, name: str) -> object:
        if type(data) is not hint:  # Exactly: a truth is no number here.
            raise ValueError(f"{name} must be of type {hint.__name__}, not {type(data).__name__}")
        return data

    return exact


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    """Of a tuple of any length (``tuple[str, ...]``), or of these types in their order (``tuple[str, bool]``)."""
    readers = [_reader(each) for each in arguments if each is not Ellipsis]
    of_any_length = arguments[-1] is Ellipsis

    def read(data: JsonValue, name: str) -> object:
        if not isinstance(data, list):
            raise ValueError(f"{name} is not a list")  # noqa: TRY004 - as above
        if of_any_length:
            return tuple([readers[0](item, name) for item in data])
        if len(readers) != len(data):
            raise ValueError(f"{name} does not have {len(readers)} items")
        return tuple([reader(item, name) for reader, item in zip(readers, data, strict=True)])

    return read
