"""How a library declares its functions.

An overload has an identifier (unique; implementations and costs are found by it), the types of its arguments (for a
method the target comes first) and of its result. The order of overloads matters: the checker keeps it, and the type of
an ambiguous call follows the first that matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scheduling.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, Kind, Type, parameter

A = parameter("A")
B = parameter("B")


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function. `method`: called on its first argument. `parameters`: type parameters it uses."""

    id: str
    arguments: tuple[Type, ...]
    result: Type
    method: bool = False
    parameters: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names: dict[str, None] = {}
        for each in (*self.arguments, self.result):
            _collect(each, names)
        object.__setattr__(self, "parameters", tuple(names))


Library = Mapping[str, tuple[Overload, ...]]
"""Overloads by the name of their function; a name with a dot is a function with a namespace."""

COMPARABLE: tuple[tuple[str, Type], ...] = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)
"""Types that have an order, as the identifiers of Kubernetes' own overloads name them."""


def function(identifier: str, *arguments: Type, result: Type) -> Overload:
    """`f(a, b)`."""
    return Overload(identifier, arguments, result)


def method(identifier: str, target: Type, *arguments: Type, result: Type) -> Overload:
    """`target.f(a)`."""
    return Overload(identifier, (target, *arguments), result, method=True)


def for_each(types: tuple[tuple[str, Type], ...], make: Callable[[str, Type], Overload]) -> tuple[Overload, ...]:
    """One overload for each of the named types."""
    return tuple(make(name, each) for name, each in types)


def _collect(of: Type, names: dict[str, None]) -> None:
    if of.kind is Kind.PARAMETER:
        names[of.name] = None
    for each in of.parameters:
        _collect(each, names)
