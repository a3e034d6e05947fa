"""The errors of expressions.

An expression that cannot be compiled is wrong for every device: Kubernetes refuses it at admission (reason `Invalid`).
An expression that fails while it is evaluated is wrong for one device: it stops the scheduling of the whole pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from scheduling.cel.syntax import SourcePlace


def shortened(text: str, longest: int) -> str:
    """Cuts a text that is too long for a message."""
    return text if len(text) <= longest else text[:longest] + "…"


class TextError(ValueError):
    """A text that a function cannot read. `value` is the text."""

    expected: ClassVar[str] = ""

    def __init__(self, value: str, reason: str) -> None:
        super().__init__(f'"{shortened(value, 80)}" {self.expected}{reason}')
        self.value = value


class CelError(Exception):
    """Any fault of an expression. `message` does not name the place."""

    def __init__(self, expression: str, message: str, place: SourcePlace | None) -> None:
        super().__init__(f"{place.line}:{place.column + 1}: {message}" if place is not None else message)
        self.expression = expression
        self.message = message
        self.place = place


@dataclass(frozen=True, slots=True)
class Issue:
    """One error in an expression; `offset` is its place in the source, in characters from 0."""

    offset: int
    message: str


class InvalidExpression(Exception):
    """The expression is wrong. `issues` in order of their places, at least one."""

    def __init__(self, issues: tuple[Issue, ...]) -> None:
        super().__init__("; ".join(each.message for each in issues))
        self.issues = issues


class SyntaxFault(InvalidExpression):
    """The text is not an expression."""


class TypeFault(InvalidExpression):
    """The expression is well formed, but names or types do not fit."""


class CompileError(CelError):
    """The expression cannot be compiled.

    `kind` is Kubernetes' word: `Invalid` (the expression is wrong) or `Internal`. `place` is None when the expression
    as a whole is wrong (its type, its length). `others` holds the other issues with their places.
    """

    def __init__(
        self,
        expression: str,
        message: str,
        place: SourcePlace | None,
        kind: Literal["Invalid", "Internal"] = "Invalid",
        others: tuple[tuple[SourcePlace, str], ...] = (),
    ) -> None:
        super().__init__(expression, message, place)
        self.kind = kind
        self.others = others


class EvaluationError(CelError):
    """The evaluation for one device failed.

    `cost` is the units spent until then; `cost_exceeded` is true if the cost limit is the reason.
    """

    def __init__(
        self, expression: str, message: str, place: SourcePlace | None, cost: int = 0, *, cost_exceeded: bool = False
    ) -> None:
        super().__init__(expression, message, place)
        self.cost = cost
        self.cost_exceeded = cost_exceeded
