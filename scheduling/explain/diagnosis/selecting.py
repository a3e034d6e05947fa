"""Why the selectors of a class or of a request do not let a device through, down to the condition that is false.

Selectors are tried in the scheduler's order, the class's before the request's own; the first that is not true decides,
and so it is the one that is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kube.bodies import text_at
from scheduling.allocator.claims import Request
from scheduling.allocator.slices import Device
from scheduling.cel.account import Condition, Missing, Read
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.explain.diagnosis.cluster import Cluster
from scheduling.explain.diagnosis.obstacles import (
    ConditionFalse,
    Obstacle,
    SelectorBroken,
    SelectorUnreadable,
    Source,
    Value,
)
from scheduling.explain.kinds import objects_at

DRIVER = "device.driver"


@dataclass(frozen=True, slots=True)
class Refusal:
    """``foreign``: the selector is about another driver's devices. ``missed``: how many conditions are false."""

    obstacle: Obstacle
    foreign: bool = False
    missed: int = 1


def expressions(request: Request, cluster: Cluster) -> list[tuple[Source, str]]:
    """The selectors of a request with those of its class first; none of a class that is missing."""
    body = cluster.classes.get(request.class_name, {})
    of_class = [text_at(each, "cel", "expression") for each in objects_at(body, "spec", "selectors")]
    return [
        *((Source("class", request.class_name, i), each) for i, each in enumerate(of_class)),
        *((Source("request", request.name, i), each or "") for i, each in enumerate(request.selectors)),
    ]


def refusal(request: Request, device: Device, name: str, cluster: Cluster) -> Refusal | None:
    """Why the selectors refuse a device, None where all are true. ``name``: what the device is called."""
    for source, expression in expressions(request, cluster):
        try:
            program = compile_expression(expression, cluster.cel_features)
        except CompileError as error:
            return Refusal(unreadable(source, error))
        try:
            if program.evaluate(device.cel).result:
                continue
        except EvaluationError as error:
            return Refusal(broken(source, error, program.account(device.cel), name))
        return _false(source, expression, program.account(device.cel), name)
    return None


def unreadable(source: Source, error: CompileError) -> SelectorUnreadable:
    """A compile error as an obstacle."""
    line, column = (error.place.line, error.place.column + 1) if error.place is not None else (0, 0)
    return SelectorUnreadable(source, error.expression, error.message, line, column)


def broken(source: Source, error: EvaluationError, account: Sequence[Condition], name: str) -> SelectorBroken:
    """A run-time error as an obstacle."""
    within = next((each.text for each in account if isinstance(each.outcome, EvaluationError)), error.expression)
    line, column = (error.place.line, error.place.column + 1) if error.place is not None else (0, 0)
    return SelectorBroken(source, error.expression, within, error.message, line, column, (name,), 1)


def _false(source: Source, expression: str, account: Sequence[Condition], name: str) -> Refusal:
    false = [each for each in account if each.outcome is False]
    if not false:
        # Conditions evaluated one by one need not show what the whole does; then the whole is told.
        return Refusal(ConditionFalse((name,), 1, source, expression))
    first = false[0]
    foreign = all(read.path == DRIVER for read in first.reads) and bool(first.reads)
    values = tuple(dict.fromkeys(Value(read.path, shown(read)) for read in first.reads))
    return Refusal(
        ConditionFalse((name,), 1, source, first.text, values, len(false) - 1),
        foreign=foreign,
        missed=sum(each.outcome is not True for each in account),
    )


def shown(read: Read) -> str | None:
    """A value as it would be written in an expression, None where the device has none."""
    return None if isinstance(read.value, Missing) else _written(read.value)


def _written(value: object) -> str:
    if isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(str(key) for key in value)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(each) for each in value)}]"
    return str(value)
