"""Choosing an implementation by the types of the arguments, where the checker could not.

The rule is cel-go's: a value is accepted by the name of its type, a container by its first entry besides.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.cel.library.function import Overload
from scheduling.cel.mappings import unmap_key
from scheduling.cel.types import Kind, Type
from scheduling.cel.values import (
    Function,
    TypeValue,
    Value,
    elements,
    is_list,
    is_map,
    list_size,
    no_such_overload,
    type_name,
)

_ANYTHING = frozenset((Kind.DYN, Kind.ANY, Kind.PARAMETER))


def accepts(declared: Type, value: Value) -> bool:
    """Whether a value may be an argument of the declared type; containers are judged by their first entry."""
    kind = declared.kind
    while kind is Kind.LIST:
        if not is_list(value):
            return False
        if not list_size(value):
            return True
        value = elements(value)[0]
        declared = declared.parameters[0]
        kind = declared.kind
    if kind in _ANYTHING:
        return True
    if kind is Kind.MAP:
        if not is_map(value):
            return False
        for stored, entry in value.items():  # type: ignore[attr-defined]
            return accepts(declared.parameters[0], unmap_key(stored)) and accepts(declared.parameters[1], entry)
        return True
    if kind is Kind.TYPE:
        return type(value) is TypeValue
    return declared.name == type_name(value)


def guarded(overload: Overload, call: Function, static: Sequence[Type]) -> Function:
    """The implementation, with a look at the types of arguments that the checker could not tell."""
    checks = [
        (position, declared)
        for position, (declared, known) in enumerate(zip(overload.accepts, static, strict=True))
        if declared != known and declared.kind not in _ANYTHING
    ]
    if not checks:
        return call

    def run(*arguments: Value) -> Value:
        for position, declared in checks:
            if not accepts(declared, arguments[position]):
                raise no_such_overload(overload.function, *arguments)
        return call(*arguments)

    return run


def dispatched(function: str, overloads: Sequence[tuple[Overload, Function]], count: int) -> Function:
    """One of several implementations, by the types at run time."""
    candidates = [each for each in overloads if len(each[0].accepts) == count]

    def run(*arguments: Value) -> Value:
        for overload, call in candidates:
            if all(accepts(declared, value) for declared, value in zip(overload.accepts, arguments, strict=True)):
                return call(*arguments)
        raise no_such_overload(function, *arguments)

    return run
