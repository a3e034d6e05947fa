"""Frozen, slotted dataclasses at a tenth of their cost at import: what they share is written once, not generated.

``dataclass`` inspects every field and compiles ten methods for every frozen class when its module is loaded. The agent
has more than a hundred of them on its way to the kubelet, and its start-up time is part of a kubelet restart's window.
So ``Record`` and ``Value`` bring all methods, ``__init__`` too; ``value`` only makes the slots; and the fields are
described when somebody asks for them. What is given up is some speed in making and comparing, and values that inherit
fields from others.

Use it as ``@value class Name(Value)``, and ``@record class Name(Record)`` for the few that change; ``fields``,
``replace``, ``is_dataclass`` and type checkers take them for the dataclasses that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

Class = TypeVar("Class", bound=type)


class _Fields:
    """Gives a class its ``__dataclass_fields__`` when they are first asked for."""

    def __get__(self, instance: object, owner: Any) -> dict[str, Field[Any]]:
        body = {"__annotations__": owner.__annotations__, "__module__": owner.__module__}
        body |= {name: default for name, _, default in owner.__stores__ if default is not MISSING}
        plain: Any = dataclass(init=False, repr=False, eq=False)(type(owner.__name__, (), body))
        described: dict[str, Field[Any]] = plain.__dataclass_fields__
        owner.__dataclass_fields__ = described
        return described


class _Parameters:
    """Gives a class its ``__signature__``: the fields, in their order."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        from inspect import Parameter, Signature  # takes 4 ms, and only help and mistakes need it

        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature(
            [
                Parameter(name, kind, default=Parameter.empty if default is MISSING else default)
                for name, _, default in owner.__stores__
            ]
        )


class Record:
    """Base of slotted classes whose fields may change; equal to itself alone."""

    __slots__: tuple[str, ...] = ()
    __dataclass_fields__ = _Fields()
    __signature__ = _Parameters()
    __stores__: tuple[tuple[str, Callable[[object, object], None], Any], ...] = ()
    """Every field: its name, what stores it (assignment may be refused), and its default."""
    __content__: Callable[[object], object] = type
    """Reads all fields at once, in C; of a class without fields, its class."""

    def __init__(self, *arguments: object, **named: object) -> None:
        slots = self.__stores__
        for (_, store, _), given in zip(slots, arguments, strict=False):
            store(self, given)
        taken = len(arguments)
        for name, store, default in slots[taken:]:
            if name in named:
                store(self, named[name])
                taken += 1
            elif default.__class__ is Field:
                store(self, default.default_factory())  # type: ignore[operator]  # _slotted leaves no other
            elif default is not MISSING:
                store(self, default)
            else:
                raise _misused(type(self), arguments, named)
        if taken != len(arguments) + len(named) or len(arguments) > len(slots):
            raise _misused(type(self), arguments, named)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"


class Value(Record):
    """Base of frozen values; two are equal when their class and all their fields are."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        content = self.__content__
        return bool(content(self) == content(other))

    def __hash__(self) -> int:
        return hash((self.__class__, self.__content__(self)))

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


def quick(cls: Class) -> Class:
    """Have a class of this kind made in a third of the time, for those that are made by the dozen in one call.

    Its ``__init__`` is compiled with the first one that is made, which takes a tenth of a millisecond.
    """
    made: Any = cls

    def first(self: Any, *arguments: object, **named: object) -> None:
        made.__init__ = _compiled(made)
        made.__init__(self, *arguments, **named)

    made.__init__ = first
    return cls


Changed = TypeVar("Changed", bound=Record)


def replace(old: Changed, /, **changes: Any) -> Changed:
    """A new value with some fields changed: ``dataclasses.replace`` without describing the fields first."""
    kept = {name: getattr(old, name) for name in old.__slots__ if name not in changes}
    return type(old)(**kept, **changes)


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
_LAST_CALLS = 4


def remembers(function: Callable[[*Arguments], Result]) -> Callable[[*Arguments], Result]:
    """Have a pure function return the very results of its last few calls where its arguments are equal.

    ``lru_cache`` would hash them, which takes longer than most functions of large values; comparing values that are
    mostly the same objects takes no time. The same result also lets its users see at once that nothing has changed.
    """
    known: tuple[tuple[tuple[object, ...], Any], ...] = ()

    @wraps(function)
    def remembering(*arguments: *Arguments) -> Result:
        nonlocal known
        for before, result in known:
            if before == arguments:
                return cast("Result", result)
        made = function(*arguments)
        known = ((arguments, made), *known[: _LAST_CALLS - 1])
        return made

    return remembering


def _slotted(cls: Class) -> Class:
    names = tuple(cls.__annotations__)
    own = {name: found for name, found in cls.__dict__.items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    made: Any = type(cls)(cls.__name__, cls.__bases__, {**own, "__slots__": names})
    made.__qualname__ = cls.__qualname__
    if names:
        made.__content__ = attrgetter(*names)
    # Slots and defaults cannot share names in a class, so the defaults move.
    made.__stores__ = tuple(
        [(name, made.__dict__[name].__set__, _default(cls.__dict__.get(name, MISSING))) for name in names]
    )
    return cast("Class", made)


def _default(written: Any) -> Any:
    """The default in the class, or in its ``field``; a ``field`` that makes its default stays one."""
    return written.default if isinstance(written, Field) and written.default is not MISSING else written


def _compiled(cls: Any) -> Callable[..., None]:
    """What ``Record.__init__`` does for this class, without looking at its fields each time."""
    known: dict[str, Any] = {"_missing": MISSING}
    parameters, lines = [], []
    for number, (name, store, default) in enumerate(cls.__stores__):
        known[f"_store_{number}"], known[f"_default_{number}"] = store, default
        given = name
        if default.__class__ is Field:
            known[f"_make_{number}"], known[f"_default_{number}"] = default.default_factory, MISSING
            given = f"_make_{number}() if {name} is _missing else {name}"
        parameters.append(name if default is MISSING else f"{name}=_default_{number}")
        lines.append(f" _store_{number}(self, {given})")
    exec("\n".join((f"def __init__(self, {', '.join(parameters)}):", *lines)), known)  # noqa: S102 - of our own fields
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _misused(cls: Any, arguments: tuple[object, ...], named: dict[str, object]) -> TypeError:
    """Python's words about a call that does not fit a function's parameters."""
    try:
        cls.__signature__.bind(*arguments, **named)
    except TypeError as error:
        return TypeError(f"{cls.__qualname__}: {error}")
    raise AssertionError("the arguments fit")
