"""A compiled expression: evaluates it for a device, accounts for the result, says what it reads and may cost at most.

Immutable and safe to use from threads. An evaluation ends: every step is charged or counted (see `values.WORK_LIMIT`).

The account is for a person. A selector is mostly a chain of `&&`; each operand is evaluated alone, so that one that
fails does not hide the others, and is shown with every part of the device that it names and the value found there. The
texts are the user's own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

from scheduling.cel.checked import Checked
from scheduling.cel.device import CelDevice
from scheduling.cel.errors import EvaluationError
from scheduling.cel.estimate import estimate
from scheduling.cel.frame import Frame
from scheduling.cel.interpreter import EvaluationPlan, PlanFault, plan
from scheduling.cel.library.quantity import Amount
from scheduling.cel.reads import Path, reads, selections
from scheduling.cel.syntax import Ast, Call, Comprehension, Expr, SourcePlace, is_bind, place_at
from scheduling.cel.values import CelFault, Optional, Stop, TooExpensive, Value, is_list, is_map, refill, type_name

DEFAULT_LIMIT = 1_000_000
"""Units an evaluation may cost in the scheduler."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of an evaluation and its cost in units."""

    result: bool
    cost: int


class MissingValue:
    """The value of a part that the device lacks."""

    def __repr__(self) -> str:
        return "missing"


MISSING = MissingValue()


@dataclass(frozen=True, slots=True)
class DeviceRead:
    """A part of the device: `path` as the user wrote it, and its value there.

    Values are str, int, bool, `Semver`, `Quantity`, lists of them, a dict for a whole domain, or `MISSING`.
    """

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class SelectorCondition:
    """One operand of the expression's outermost `&&`: its text, its place, and its result alone."""

    text: str
    place: SourcePlace
    outcome: bool | EvaluationError
    reads: tuple[DeviceRead, ...]


class Program:
    """One expression for all devices.

    expression: its text. output_type: the static type of its result: `bool`, `dyn` or `google.protobuf.Any`.
    """

    def __init__(self, checked: Checked) -> None:
        """Plans a checked expression. Raises EvaluationError when one of its constants cannot be computed."""
        self.checked = checked
        self.expression = checked.ast.source
        self.output_type = str(checked.result)
        try:
            self._plan = plan(checked)
        except PlanFault as fault:
            raise EvaluationError(self.expression, fault.message, checked.ast.place(fault.node)) from fault

    @cached_property
    def max_cost(self) -> int:
        """The worst cost that the API server would estimate, in units; 2**64-1 is unbounded."""
        return estimate(self.checked)

    @cached_property
    def reads(self) -> frozenset[Path] | None:
        """The parts of a device that the result can depend on (see `reads.reads`), besides `fault`; None for any."""
        return reads(self.checked.ast.root)

    def signature(self, device: CelDevice) -> Hashable | None:
        """The values that the result for this device depends on: devices with equal signatures give equal results.

        None where the text of the expression does not show them.
        """
        paths = self._ordered
        if paths is None:
            return None
        # Written out and not by `CelDevice.read`: this is asked for every device, and calls take most of its time.
        found: list[Hashable] = [device.fault]
        for path in paths:
            value: Value = device.variable
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            kind = type(value)
            found.append((kind, value) if kind is str or kind is int else _frozen(value))
        return tuple(found)

    @cached_property
    def _ordered(self) -> tuple[Path, ...] | None:
        return None if self.reads is None else tuple(sorted(self.reads))

    def evaluate(self, device: CelDevice, cost_limit: int = DEFAULT_LIMIT) -> EvaluationResult:
        """Whether the expression holds for the device. Raises EvaluationError."""
        frame = Frame(device, cost_limit, self._plan.slots)
        result = _run(self._plan, frame, self.checked.ast)
        return EvaluationResult(result, frame.cost)

    def account(self, device: CelDevice) -> tuple[SelectorCondition, ...]:
        """The operands of the outermost `&&`, each evaluated alone, with the parts of the device that it read."""
        return account(self.checked, device)


def _frozen(value: Value) -> Hashable:
    """A value as something to compare and to hash; values of different types are different.

    So are quantities of one number in different forms: to Kubernetes `512Mi` is an integer and `0.5Gi` is not.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool:
        return (kind, value)
    if isinstance(value, Amount):
        return (Amount, value.quantity.form)
    if is_list(value):
        return ("list", *(_frozen(each) for each in value))  # type: ignore[attr-defined]
    if is_map(value):
        return ("map", frozenset((key, _frozen(each)) for key, each in value.items()))  # type: ignore[attr-defined]
    return (kind, value)


_HINT = "; an identifier that not every device has can be read with .? and orValue(), or guarded with has()"


def _run(made: EvaluationPlan, frame: Frame, ast: Ast) -> bool:
    """Runs a plan; the frame counts the cost. Raises EvaluationError."""
    if frame.device.fault:
        raise EvaluationError(ast.source, frame.device.fault, None)
    try:
        result = made.run(frame)
    except CelFault as fault:
        message = fault.message + (_HINT if fault.message.startswith("no such key") else "")
        raise EvaluationError(ast.source, message, ast.place(fault.node), frame.cost) from fault
    except TooExpensive as stop:
        frame.cost = max(frame.cost, frame.limit + 1)
        message = f"the evaluation was stopped because it costs more than {frame.limit} units"
        raise EvaluationError(ast.source, message, None, frame.cost, cost_exceeded=True) from stop
    except Stop as stop:
        raise EvaluationError(ast.source, stop.message, None, frame.cost) from stop
    except RecursionError as error:
        # The plan bounds its own depth; a caller deep in its stack already may still leave too little.
        raise EvaluationError(ast.source, "the expression is nested too deeply", None, frame.cost) from error
    finally:
        refill()
    return _truth(result, frame, ast)


def _truth(result: Value, frame: Frame, ast: Ast) -> bool:
    while type(result) is Optional and result.present:
        result = result.get()
    if isinstance(result, bool):
        return result
    message = f"the result must be true or false, but it is of type {type_name(result)}"
    raise EvaluationError(ast.source, message, None, frame.cost)


_MOST_CONDITIONS = 250
_LIMIT_TOGETHER = 10 * DEFAULT_LIMIT
"""Units that all conditions may cost together."""


def account(checked: Checked, device: CelDevice) -> tuple[SelectorCondition, ...]:
    """The conditions of an expression for a device, in the order of the text; very many become one."""
    root = checked.ast.root
    parts = _parts(root)
    if len(parts) > _MOST_CONDITIONS:
        parts = [(root, ())]
    found: list[SelectorCondition] = []
    left = _LIMIT_TOGETHER
    for part, names in parts:
        condition, cost = _condition(checked, part, names, device, min(left, DEFAULT_LIMIT))
        found.append(condition)
        left = max(left - cost, 0)
    return tuple(found)


_Bindings = tuple[Comprehension, ...]
"""The `cel.bind` around an expression, from the outside in."""


def _parts(root: Expr) -> list[tuple[Expr, _Bindings]]:
    """The operands of the outermost `&&`, also within `cel.bind`."""
    found: list[tuple[Expr, _Bindings]] = []
    pending: list[tuple[Expr, _Bindings]] = [(root, ())]
    while pending:
        node, names = pending.pop()
        if isinstance(node, Call) and node.function == "_&&_":
            pending.extend((each, names) for each in reversed(node.arguments))
        elif isinstance(node, Comprehension) and is_bind(node):
            pending.append((node.result, (*names, node)))
        else:
            found.append((node, names))
    return found


def _condition(
    checked: Checked, part: Expr, names: _Bindings, device: CelDevice, limit: int
) -> tuple[SelectorCondition, int]:
    """The condition and its cost."""
    ast = checked.ast
    alone = part
    for name in reversed(names):
        alone = replace(name, result=alone)
    start, end = ast.spans.get(part.id, (0, len(ast.source)))
    outcome, cost = _outcome(replace(checked, ast=replace(ast, root=alone)), device, limit)
    place = place_at(ast.source, start)
    return SelectorCondition(ast.source[start:end], place, outcome, _reads(ast, alone, device)), cost


def _outcome(checked: Checked, device: CelDevice, limit: int) -> tuple[bool | EvaluationError, int]:
    try:
        made = plan(checked)
    except PlanFault as fault:
        return EvaluationError(checked.ast.source, fault.message, checked.ast.place(fault.node)), 0
    frame = Frame(device, limit, made.slots)
    try:
        return _run(made, frame, checked.ast), frame.cost
    except EvaluationError as error:
        return error, frame.cost


def _reads(ast: Ast, operand: Expr, device: CelDevice) -> tuple[DeviceRead, ...]:
    found: dict[str, DeviceRead] = {}
    for each in selections(operand, device):
        text = _text(ast, each.node)
        if each.path and text not in found:
            found[text] = DeviceRead(text, _value(device, each.path))
    return tuple(found.values())


def _text(ast: Ast, node: Expr) -> str:
    start, end = ast.spans.get(node.id, (0, 0))
    return " ".join(ast.source[start:end].split())


def _value(device: CelDevice, path: Path) -> object:
    value = device.read(path[:3], MISSING)
    if value == {} and len(path) == 2:
        return MISSING
    return _shown(value)


def _shown(value: Value) -> object:
    if isinstance(value, Amount):
        return value.quantity
    if is_list(value):
        return [_shown(each) for each in value]  # type: ignore[attr-defined]
    if is_map(value):
        return {str(key): _shown(each) for key, each in value.items()}  # type: ignore[attr-defined]
    return value
