"""What a node of the tree becomes when it is planned: a constant, an attribute or a closure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.cel.frame import Run
from scheduling.cel.selections import Attribute, evaluator
from scheduling.cel.syntax import Literal, Uint
from scheduling.cel.values import Unsigned, Value


class PlanFault(Exception):
    """The expression cannot be made ready. `node` is where, as far as it is known."""

    def __init__(self, message: str, node: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.node = node


@dataclass(frozen=True, slots=True)
class Constant:
    """A planned node that is a value."""

    value: Value


Node = Constant | Attribute | Run


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled expression: evaluate with `run(Frame(device, limit, slots))`."""

    run: Run
    slots: int


def evaluated(node: Node) -> Run:
    """The closure that evaluates a planned node and charges for it."""
    if isinstance(node, Constant):
        return _constant(node.value)
    if isinstance(node, Attribute):
        return evaluator(node)
    return node


def _constant(value: Value) -> Run:
    return lambda _frame: value


def constant_of(literal: Literal) -> Value:
    """The value of a literal."""
    return Unsigned(literal.value.value) if isinstance(literal.value, Uint) else literal.value


def values_of(planned: Sequence[Node]) -> list[Value]:
    """The values of nodes that are all constants, else an empty list."""
    values: list[Value] = []
    for each in planned:
        if not isinstance(each, Constant):
            return []
        values.append(each.value)
    return values
