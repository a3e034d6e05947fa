"""The methods of an authorizer, which no selector has: every call fails for the type of its target.

They are here all the same, because a call on a value whose type is known only when it is evaluated has to compile.
"""

from __future__ import annotations

from scheduling.cel.declarations.authorization import FUNCTIONS
from scheduling.cel.functions.registry import Implementation
from scheduling.cel.values import Function, Value, no_such_overload


def _failing(function: str) -> Function:
    def call(*arguments: Value) -> Value:
        raise no_such_overload(function, *arguments)

    return call


IMPLEMENTATIONS = tuple(
    Implementation(overload.id, function, overload.arguments, _failing(function))
    for function, overloads in FUNCTIONS.items()
    for overload in overloads
)
