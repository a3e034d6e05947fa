"""An expression taken apart for a person: which of its conditions holds for a device, and with what values.

A selector is mostly a chain of `&&`. Each operand is evaluated alone here, so that one that fails does not hide the
others, and shown with every part of the device it names and the value found there. The texts are the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduling.cel.checked import Checked
from scheduling.cel.device import Device
from scheduling.cel.errors import EvaluationError
from scheduling.cel.frame import Frame
from scheduling.cel.interpreter import plan
from scheduling.cel.library.quantity import Amount
from scheduling.cel.nodes import PlanFault
from scheduling.cel.reads import Path, selections
from scheduling.cel.runs import DEFAULT_LIMIT, run_plan
from scheduling.cel.syntax import Ast, Call, Comprehension, Expr, Place, place_at
from scheduling.cel.tree import is_bind
from scheduling.cel.values import Value, is_list, is_map


class Missing:
    """In place of the value of something that the device does not have."""

    def __repr__(self) -> str:
        return "missing"


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Read:
    """A part of the device: `path` as the user wrote it, and its value there.

    Values are str, int, bool, `Semver`, `Quantity`, lists of them, or a dict for a whole domain; `MISSING` for none.
    """

    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Condition:
    """One operand of the expression's outermost `&&`: its text and where it starts, and what it gave alone."""

    text: str
    place: Place
    outcome: bool | EvaluationError
    reads: tuple[Read, ...]


_MOST_CONDITIONS = 250
_LIMIT_TOGETHER = 10 * DEFAULT_LIMIT
"""Units that all conditions may cost together."""


def conditions(checked: Checked, device: Device) -> tuple[Condition, ...]:
    """The conditions of an expression for a device, in the order of the text; of very many it makes only one."""
    root = checked.ast.root
    parts = _parts(root)
    if len(parts) > _MOST_CONDITIONS:
        parts = [(root, ())]
    found: list[Condition] = []
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


def _condition(checked: Checked, part: Expr, names: _Bindings, device: Device, limit: int) -> tuple[Condition, int]:
    """The condition and what it cost."""
    ast = checked.ast
    alone = part
    for name in reversed(names):
        alone = replace(name, result=alone)
    start, end = ast.spans.get(part.id, (0, len(ast.source)))
    outcome, cost = _outcome(replace(checked, ast=replace(ast, root=alone)), device, limit)
    place = place_at(ast.source, start)
    return Condition(ast.source[start:end], place, outcome, _reads(ast, alone, device)), cost


def _outcome(checked: Checked, device: Device, limit: int) -> tuple[bool | EvaluationError, int]:
    try:
        made = plan(checked)
    except PlanFault as fault:
        return EvaluationError(checked.ast.source, fault.message, checked.ast.place(fault.node)), 0
    frame = Frame(device, limit, made.slots)
    try:
        return run_plan(made, frame, checked.ast), frame.cost
    except EvaluationError as error:
        return error, frame.cost


def _reads(ast: Ast, operand: Expr, device: Device) -> tuple[Read, ...]:
    found: dict[str, Read] = {}
    for each in selections(operand, device):
        text = _text(ast, each.node)
        if each.path and text not in found:
            found[text] = Read(text, _value(device, each.path))
    return tuple(found.values())


def _text(ast: Ast, node: Expr) -> str:
    start, end = ast.spans.get(node.id, (0, 0))
    return " ".join(ast.source[start:end].split())


def _value(device: Device, path: Path) -> object:
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
