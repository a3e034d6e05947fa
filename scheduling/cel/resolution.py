"""Which overloads of a function a call may mean by the types of its arguments, and what type the call is of.

All that fit are kept, in the order of their declaration. The type is that of the first; it becomes `dyn` when another
one that fits has a different result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.cel.library.function import Overload
from scheduling.cel.types import DYN, Type
from scheduling.cel.unification import Unifier, is_dynamic, same


@dataclass(frozen=True, slots=True)
class Resolution:
    """The identifiers of the overloads, at least one, and the type of the result."""

    overloads: tuple[str, ...]
    result: Type


def resolve(
    unifier: Unifier, overloads: Sequence[Overload], given: Sequence[Type], *, method: bool
) -> Resolution | None:
    """The overloads that fit the given types, for a method the target's first; None if there are none.

    Binds parameters of the given types in the unifier.
    """
    result: Type | None = None
    fitting: list[str] = []
    for overload in overloads:
        if overload.method is not method or len(overload.arguments) != len(given):
            continue
        arguments: Sequence[Type] = overload.arguments
        returned = overload.result
        if overload.parameters:
            *arguments, returned = unifier.instance((*arguments, returned), overload.parameters)
        if not unifier.all_agree(given, arguments):
            continue
        fitting.append(overload.id)
        returned = unifier.resolved(returned)
        if result is None:
            result = returned
        elif not is_dynamic(result) and not same(returned, result):
            result = DYN
    return None if result is None else Resolution(tuple(fitting), result)
