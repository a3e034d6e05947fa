"""Selectors of classes and requests, asked of devices.

A device is selectable for a request if every selector of the class and then of the request is true of it. A selector
that cannot be compiled or that fails on a device ends the whole allocation, on every node: it is wrong, and "false"
would hide it. Answers are remembered by what an expression can read of a device, so that a thousand equal devices cost
one evaluation; what can go wrong is remembered like an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from scheduling.allocator.claims import Claim, DeviceClass, DeviceRequest
from scheduling.allocator.pools import Features
from scheduling.allocator.reading import FatalError, ObjectReference
from scheduling.allocator.slices import SliceDevice
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CelError, CompileError, EvaluationError
from scheduling.cel.program import Program


class SelectorError(FatalError):
    """A selector that cannot be compiled, or that failed on a device. `cause` says what and where in the expression."""

    def __init__(self, owner: ObjectReference, field: str, cause: CelError, device: SliceDevice | None) -> None:
        kind = "does not compile" if device is None else f"fails on device {device.id}"
        hint = _hint(cause) if device is not None else ""
        super().__init__(owner, field, f"the expression {kind}: {cause}{hint}")
        self.cause = cause
        self.device = device


class Selectors:
    """Answers whether devices are selectable. One serves all allocations of an allocator, in any thread."""

    def __init__(self, features: Features) -> None:
        """`features` decide what an expression can see of a device."""
        self._features = features
        self._cel = CelFeatures(
            consumable_capacity=features.consumable_capacity, list_attributes=features.list_attributes, stored=True
        )
        self._known: dict[str, tuple[Program, dict[Hashable, bool | EvaluationError]]] = {}
        """By expression: its program, and its answers by what it can read of a device."""

    def select(self, device: SliceDevice, claim: Claim, request: DeviceRequest, device_class: DeviceClass) -> bool:
        """Whether the device is selectable for the request, its own choice of nodes left aside.

        Raises `SelectorError`.
        """
        if device.binding_conditions and not self._features.binding_conditions:
            return False
        return self._hold(device_class.selectors, device, device_class.reference, "spec") and self._hold(
            request.selectors, device, claim.reference, request.path
        )

    def program(self, expression: str) -> Program:
        """The compiled expression. Raises `CompileError`."""
        return compile_expression(expression, self._cel)

    def _hold(self, expressions: Sequence[str | None], device: SliceDevice, owner: ObjectReference, path: str) -> bool:
        """Whether all expressions hold; `path`: of the part of `owner` that has them."""
        for index, expression in enumerate(expressions):
            if expression is None:
                field = f"{path}.selectors[{index}]"
                raise FatalError(owner, field, "the selector is not CEL; no other kind is supported")
            outcome = self._outcome(expression, device)
            if outcome is False:
                return False
            if outcome is not True:
                field = f"{path}.selectors[{index}].cel.expression"
                failed_on = device if isinstance(outcome, EvaluationError) else None
                raise SelectorError(owner, field, outcome, failed_on) from outcome
        return True

    def _outcome(self, expression: str, device: SliceDevice) -> bool | EvaluationError | CompileError:
        found = self._known.get(expression)
        if found is None:
            try:
                found = self._known.setdefault(expression, (self.program(expression), {}))
            except CompileError as error:
                return error
        program, answers = found
        signature = program.signature(device.cel)
        if signature is None:
            return _evaluate(program, device)
        known = answers.get(signature)
        return known if known is not None else answers.setdefault(signature, _evaluate(program, device))


def _evaluate(program: Program, device: SliceDevice) -> bool | EvaluationError:
    try:
        return program.evaluate(device.cel).result
    except EvaluationError as error:
        return error


def _hint(cause: CelError) -> str:
    return " (use .? with orValue(), or has(), where a device may lack it)" if "no such key" in cause.message else ""
