"""An expression taken apart for a person: which of its conditions holds for a device, and with what values.

A selector is mostly a chain of `&&`. Each operand is evaluated alone here, so that one that fails does not hide the
others, and shown with every part of the device it names and the value found there. The texts are the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from driver.structured.cel.checked import Checked
from driver.structured.cel.device import Device
from driver.structured.cel.errors import EvaluationError
from driver.structured.cel.frame import Frame
from driver.structured.cel.functions.quantity import Amount
from driver.structured.cel.interpreter import plan
from driver.structured.cel.nodes import PlanFault
from driver.structured.cel.reads import Path, is_bind, selections
from driver.structured.cel.runs import DEFAULT_LIMIT, run_plan
from driver.structured.cel.syntax import Ast, Call, Comprehension, Expr, Place
from driver.structured.cel.values import Value, is_list, is_map


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


def conditions(checked: Checked, device: Device) -> tuple[Condition, ...]:
    """The conditions of an expression for a device, in the order of the text."""
    return tuple(_condition(checked, part, alone, device) for part, alone in _parts(checked.ast.root))


def _parts(root: Expr) -> list[tuple[Expr, Expr]]:
    """The operands of the outermost `&&`, also within `cel.bind`, each with the expression that evaluates it alone."""
    found: list[tuple[Expr, Expr]] = []
    pending: list[tuple[Expr, tuple[Comprehension, ...]]] = [(root, ())]
    while pending:
        node, names = pending.pop()
        if isinstance(node, Call) and node.function == "_&&_":
            pending.extend((each, names) for each in reversed(node.arguments))
        elif isinstance(node, Comprehension) and is_bind(node):
            pending.append((node.result, (*names, node)))
        else:
            alone = node
            for name in reversed(names):
                alone = replace(name, result=alone)
            found.append((node, alone))
    return found


def _condition(checked: Checked, part: Expr, alone: Expr, device: Device) -> Condition:
    ast = checked.ast
    start, end = ast.spans.get(part.id, (0, len(ast.source)))
    before = ast.source[:start]
    place = Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1))
    outcome = _outcome(replace(checked, ast=replace(ast, root=alone)), device)
    return Condition(ast.source[start:end], place, outcome, _reads(ast, alone, device))


def _outcome(checked: Checked, device: Device) -> bool | EvaluationError:
    try:
        made = plan(checked)
        return run_plan(made, Frame(device, DEFAULT_LIMIT, made.slots), checked.ast)
    except EvaluationError as error:
        return error
    except PlanFault as fault:
        return EvaluationError(checked.ast.source, fault.message, checked.ast.place(fault.node))


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
