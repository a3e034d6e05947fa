"""A compiled expression: evaluate it for a device, ask what it reads and what it may cost at most.

Immutable and safe to use from threads. An evaluation ends: every step is charged or counted (see `values.WORK_LIMIT`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from scheduling.cel.account import Condition, conditions
from scheduling.cel.checked import Checked
from scheduling.cel.device import Device
from scheduling.cel.errors import EvaluationError
from scheduling.cel.estimate import estimate
from scheduling.cel.frame import Frame
from scheduling.cel.interpreter import plan
from scheduling.cel.library.quantity import Amount
from scheduling.cel.nodes import PlanFault
from scheduling.cel.reads import Path, reads
from scheduling.cel.runs import DEFAULT_LIMIT, run_plan
from scheduling.cel.values import Value, is_list, is_map


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation gave, and what it cost in units."""

    result: bool
    cost: int


class Program:
    """One expression for all devices.

    expression: its text. output_type: the static type of its result: `bool`, `dyn` or `google.protobuf.Any`.
    """

    def __init__(self, checked: Checked) -> None:
        """Make a checked expression ready. Raises EvaluationError when one of its constants cannot be computed."""
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
        """What the result can depend on (see `reads.reads`) beside the soundness of the device; None for anything."""
        return reads(self.checked.ast.root)

    def signature(self, device: Device) -> Hashable | None:
        """What the result for this device depends on: devices with equal signatures give equal outcomes.

        None where that cannot be told from the text of the expression.
        """
        if self.reads is None:
            return None
        return (device.fault, *(_frozen(device.read(path)) for path in self._ordered))

    @cached_property
    def _ordered(self) -> tuple[Path, ...]:
        return tuple(sorted(self.reads or ()))

    def evaluate(self, device: Device, cost_limit: int = DEFAULT_LIMIT) -> Outcome:
        """Whether the expression holds for the device. Raises EvaluationError."""
        frame = Frame(device, cost_limit, self._plan.slots)
        result = run_plan(self._plan, frame, self.checked.ast)
        return Outcome(result, frame.cost)

    def account(self, device: Device) -> tuple[Condition, ...]:
        """The conditions that the expression joins with `&&`, each evaluated alone, with what it read of the device."""
        return conditions(self.checked, device)


def _frozen(value: Value) -> Hashable:
    """A value as something to compare and to hash; values of different types are different.

    So are quantities of one number in different forms: `0.5Gi` is no integer to Kubernetes, `512Mi` is one.
    """
    if isinstance(value, Amount):
        return (Amount, value.quantity.form)
    if is_list(value):
        return ("list", *(_frozen(each) for each in value))  # type: ignore[attr-defined]
    if is_map(value):
        return ("map", frozenset((key, _frozen(each)) for key, each in value.items()))  # type: ignore[attr-defined]
    return (type(value), value)
