"""The variables of folds while an expression is checked: which are in scope, and what type they have."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.cel.types import DYN, ERROR, INT, Kind, Type


class Scopes:
    """The scopes that are open, from the outside in."""

    def __init__(self) -> None:
        self._open: list[Mapping[str, Type]] = []

    def enter(self, variables: Mapping[str, Type]) -> None:
        """Opens a scope."""
        self._open.append(variables)

    def leave(self) -> None:
        """Closes the innermost scope."""
        self._open.pop()

    def find(self, name: str) -> Type | None:
        """The type of a variable, looked for from the inside out; a dot before the name is ignored."""
        name = name.removeprefix(".")
        for scope in reversed(self._open):
            found = scope.get(name)
            if found is not None:
                return found
        return None


def loop_variables(over: Type, *, two: bool) -> tuple[Type, Type] | None:
    """The types of the variables of a fold over a range of that type; None if nothing can iterate over it.

    With one variable the second is an error's type.
    """
    if over.kind is Kind.LIST:
        return (INT, over.parameters[0]) if two else (over.parameters[0], ERROR)
    if over.kind is Kind.MAP:
        key, value = over.parameters
        return key, value
    if over.kind in (Kind.DYN, Kind.ERROR, Kind.PARAMETER):
        return DYN, DYN
    return None
