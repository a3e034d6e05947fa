"""Frozen, slotted dataclasses at a tenth of their cost at import: what they share is written once, not generated.

``dataclass`` inspects every field and compiles ten methods for every frozen class when its module is loaded. The agent
has more than a hundred of them on its way to the kubelet, and its start-up time is part of a kubelet restart's window.
So ``Value`` brings comparing, hashing, printing and refusing changes; ``value`` makes the slots; ``__init__`` is
compiled when the first value is made and the fields are described when somebody asks for them, since many classes are
never needed on a given node. What is given up is some speed in comparing, and values that inherit fields from others.

Use it as ``@value class Name(Value)``, and ``@record class Name(Record)`` for the few that change; ``fields``,
``replace``, ``is_dataclass`` and type checkers take them for the dataclasses that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from inspect import Signature, signature
from typing import Any, TypeVar, cast, dataclass_transform

Class = TypeVar("Class", bound=type)


class _Fields:
    """Gives a class its ``__dataclass_fields__`` when they are first asked for."""

    def __get__(self, instance: object, owner: type) -> dict[str, Field[Any]]:
        plain: Any = type(owner.__name__, (), {**_declared(owner), "__module__": owner.__module__})
        described: dict[str, Field[Any]] = dataclass(init=False, repr=False, eq=False)(plain).__dataclass_fields__
        owner.__dataclass_fields__ = described  # type: ignore[attr-defined]
        return described


class _Parameters:
    """Gives a class its ``__signature__`` when it is asked for: that of the ``__init__`` which it will have."""

    def __get__(self, instance: object, owner: type) -> Signature:
        made = signature(_initialiser(owner))
        return made.replace(parameters=list(made.parameters.values())[1:])


class Record:
    """Base of slotted classes whose fields may change; equal to itself alone."""

    __slots__: tuple[str, ...] = ()
    __dataclass_fields__ = _Fields()
    __signature__ = _Parameters()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"


class Value(Record):
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

    def __setattr__(self, name: str, new: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: Class) -> Class:
    """Make a class that inherits from ``Value`` a frozen, slotted dataclass."""
    return _slotted(cls)


@dataclass_transform(field_specifiers=(field,))
def record(cls: Class) -> Class:
    """Make a class that inherits from ``Record`` a slotted dataclass."""
    return _slotted(cls)


Changed = TypeVar("Changed", bound=Record)


def replace(old: Changed, /, **changes: Any) -> Changed:
    """A new value with some fields changed: ``dataclasses.replace`` without describing the fields first."""
    kept = {name: getattr(old, name) for name in old.__slots__ if name not in changes}
    return type(old)(**kept, **changes)


def _slotted(cls: Class) -> Class:
    names = tuple(cls.__annotations__)
    own = {name: found for name, found in cls.__dict__.items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    # Slots and defaults cannot share names in a class, so the defaults move.
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    made: Any = type(cls)(cls.__name__, cls.__bases__, {**own, "__slots__": names, "_defaults": defaults})
    made.__qualname__ = cls.__qualname__

    def first(self: object, *arguments: object, **named: object) -> None:
        made.__init__ = _initialiser(made)
        made.__init__(self, *arguments, **named)

    made.__init__ = first
    return cast("Class", made)


def _declared(cls: Any) -> dict[str, Any]:
    """Annotations and defaults as they stood in the class."""
    return {"__annotations__": cls.__annotations__, **cls._defaults}


def _initialiser(cls: Any) -> Callable[..., None]:
    """``__init__`` with the fields as parameters; it stores through the slots, because assignment is refused."""
    names: dict[str, Any] = {}
    parameters, body = ["self"], []
    for name in cls.__slots__:
        default = cls._defaults.get(name, MISSING)
        makes = isinstance(default, Field)
        parameters.append(name if default is MISSING else f"{name}=default_{name}")
        names[f"set_{name}"] = getattr(cls, name).__set__
        # A default that is made anew each time has itself as the sign that none was given.
        names[f"default_{name}"] = default
        names[f"make_{name}"] = _factory(default) if makes else None
        given = f"make_{name}() if {name} is default_{name} else {name}" if makes else name
        body.append(f"set_{name}(self, {given})")
    # What dataclass does, too; the text is made of the class' own field names alone.
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)  # noqa: S102
    made: Callable[..., None] = names["__init__"]
    return made


def _factory(described: Field[Any]) -> Callable[[], Any]:
    """What makes the default that ``field`` describes."""
    if described.default_factory is not MISSING:
        return described.default_factory
    return lambda: described.default
