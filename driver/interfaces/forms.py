"""The JSON form of interfaces, for the claims' records and for the journal of moved interfaces.

One rule for all values of ``node.interfaces.model``: an object with the fields that differ from their defaults, under
their own names. So a field that a later version adds needs nothing here, and an older version ignores it. A field of a
wrong type is an error that names its path: the record's hash proves that it was written that way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from kube.bodies import Json, JsonObject
from node.values import Value
from scheduling.api.excerpts import shown

Form = TypeVar("Form", bound=Value)


def form_of(item: Value) -> JsonObject:
    """The value's JSON form."""
    return {
        name: _json(found)
        for name, _, default in item.__stores__
        if (found := getattr(item, name)) != default or default.__class__ is Field
    }


def value_of(kind: type[Form], form: Json, place: str) -> Form:
    """The value in ``form``, which is found at ``place``; raises ValueError that names the field."""
    if not isinstance(form, dict):
        raise ValueError(f"{place} is {shown(form)} but must be an object")  # noqa: TRY004 - as in driver.claims.record
    hints = get_type_hints(kind)
    missing = [name for name, _, default in kind.__stores__ if default is MISSING and name not in form]
    if missing:
        raise ValueError(f"{place} has no {missing[0]}")
    known = [name for name, _, _ in kind.__stores__ if name in form]
    return kind(**{name: _read(hints[name], form[name], f"{place}.{name}") for name in known})


def _json(found: object) -> Json:
    if isinstance(found, Value):
        return form_of(found)
    if isinstance(found, tuple):
        return [_json(each) for each in found]
    assert found is None or isinstance(found, bool | int | float | str), f"{found!r} has no JSON form"
    return found


def _read(hint: Any, found: Json, place: str) -> Any:
    """``found`` as the type that a field's annotation says."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        if found is None:
            return None
        (hint,) = (each for each in arguments if each is not NoneType)
        return _read(hint, found, place)
    if origin is tuple:
        return _tuple(arguments, found, place)
    if issubclass(hint, Value):
        return value_of(hint, found, place)
    # JSON writes a float without decimals as an integer; a boolean is an integer to Python alone.
    fits = type(found) is hint or (hint is float and type(found) is int)
    if not fits:
        raise ValueError(f"{place} is {shown(found)} but must be {_WORDS[hint]}")
    return float(found) if hint is float and isinstance(found, int) else found


def _tuple(arguments: tuple[Any, ...], found: Json, place: str) -> tuple[Any, ...]:
    if not isinstance(found, list):
        raise ValueError(f"{place} is {shown(found)} but must be a list")  # noqa: TRY004 - as above
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(found)
    if len(arguments) != len(found):
        raise ValueError(f"{place} is {shown(found)} but must have {len(arguments)} items")
    each: Callable[[int], str] = f"{place}[{{}}]".format
    return tuple(
        _read(hint, item, each(number)) for number, (hint, item) in enumerate(zip(arguments, found, strict=True))
    )


_WORDS = {str: "a string", int: "a whole number", bool: "true or false", float: "a number"}
