"""Frozen, slotted dataclasses at a third of their cost at import: what they share is written once, not generated.

``dataclass`` compiles ten methods for every frozen class when its module is loaded. The agent has dozens of them on its
way to the kubelet, and its start-up time is part of a kubelet restart's window. So ``Value`` brings comparing, hashing,
printing and refusing changes, and ``value`` has ``dataclass`` do the rest (fields, slots, ``replace``) and compiles the
one method that differs, ``__init__``. What is given up is some speed in comparing.

Use it as ``@value class Name(Value)``; everything that works with dataclasses works with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform

Class = TypeVar("Class", bound=type)


class Value:
    """Base of frozen values; two are equal when their class and all their fields are."""

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.__slots__])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.__class__, self._fields()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"

    def __setattr__(self, name: str, new: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: Class) -> Class:
    """Make a class that inherits from ``Value`` a frozen, slotted dataclass."""
    made: Any = dataclass(slots=True, init=False, repr=False, eq=False)(cls)
    made.__init__ = _initialiser(made)
    return cast("Class", made)


def _initialiser(cls: type) -> Callable[..., None]:
    """``__init__`` with the fields as parameters; it stores through the slots, because assignment is refused."""
    names: dict[str, Any] = {}
    parameters, body = ["self"], []
    for each in fields(cls):
        parameters.append(each.name + _default(each, names))
        names[f"set_{each.name}"] = getattr(cls, each.name).__set__
        given = each.name
        if each.default_factory is not MISSING:
            given = f"make_{each.name}() if {each.name} is missing else {each.name}"
        body.append(f"set_{each.name}(self, {given})")
    # What dataclass does, too; the text is made of the class' own field names alone.
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)  # noqa: S102
    made: Callable[..., None] = names["__init__"]
    return made


def _default(each: Field[Any], names: dict[str, Any]) -> str:
    """The default in a parameter list, with what it refers to put into ``names``."""
    if each.default_factory is not MISSING:
        names[f"make_{each.name}"], names["missing"] = each.default_factory, MISSING
        return "=missing"
    if each.default is not MISSING:
        names[f"default_{each.name}"] = each.default
        return f"=default_{each.name}"
    return ""
