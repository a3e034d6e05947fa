"""Selectors of classes and requests, asked of devices.

A device is selectable for a request if every selector of the class and then of the request is true of it. A selector
that cannot be compiled or that fails on a device ends the whole allocation, on every node: it is wrong, and "false"
would hide it. Answers are remembered by what an expression can read of a device, so that a thousand equal devices cost
one evaluation; what can go wrong is remembered like an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from driver.structured.cel.compiler import compile as compile_expression
from driver.structured.cel.environment import Features as CelFeatures
from driver.structured.cel.errors import CelError, CompileError, EvaluationError
from driver.structured.cel.program import Program
from driver.structured.claims import Claim, Request
from driver.structured.classes import DeviceClass
from driver.structured.errors import FatalError, ObjectReference
from driver.structured.features import Features
from driver.structured.slices import Device

_Key = tuple[Hashable, ...]


class SelectorError(FatalError):
    """A selector that cannot be compiled, or that failed on a device. `cause` says what and where in the expression."""

    def __init__(self, owner: ObjectReference, field: str, cause: CelError, device: Device | None) -> None:
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
        self._known: dict[tuple[str, _Key], bool | EvaluationError] = {}

    def select(self, device: Device, claim: Claim, request: Request, device_class: DeviceClass) -> bool:
        """Whether the device is selectable for the request, its own choice of nodes left aside.

        Raises `SelectorError`.
        """
        if device.binding_conditions and not self._features.binding_conditions:
            return False
        for index, expression in enumerate(device_class.selectors):
            if not self._holds(expression, device, device_class.reference, f"spec.selectors[{index}]"):
                return False
        for index, expression in enumerate(request.selectors):
            if not self._holds(expression, device, claim.reference, f"{request.path}.selectors[{index}]"):
                return False
        return True

    def program(self, expression: str) -> Program:
        """The compiled expression. Raises `CompileError`."""
        return compile_expression(expression, self._cel)

    def _holds(self, expression: str | None, device: Device, owner: ObjectReference, field: str) -> bool:
        if expression is None:
            raise FatalError(owner, field, "the selector is not CEL; no other kind is known")
        try:
            program = self.program(expression)
        except CompileError as error:
            raise SelectorError(owner, f"{field}.cel.expression", error, None) from error
        if program.reads is None:
            outcome = _evaluate(program, device)
        else:
            key = (expression, seen_of(device, program.reads))
            known = self._known.get(key)
            outcome = known if known is not None else self._known.setdefault(key, _evaluate(program, device))
        if isinstance(outcome, EvaluationError):
            raise SelectorError(owner, f"{field}.cel.expression", outcome, device) from outcome
        return outcome


def _evaluate(program: Program, device: Device) -> bool | EvaluationError:
    try:
        return program.evaluate(device.cel).result
    except EvaluationError as error:
        return error


def seen_of(device: Device, reads: frozenset[tuple[str, ...]]) -> _Key:
    """What the device has at these places. Order does not matter: it is the same for one set of places."""
    driver = device.id.driver
    values: list[Hashable] = [driver]
    for read in reads:
        kind, *rest = read
        if kind == "driver":
            continue
        if kind == "allowMultipleAllocations":
            values.append(device.allows_multiple)
        else:
            values.append(_part(device.raw(kind), driver, rest))
    return tuple(values)


def _part(entries: Mapping[str, object], driver: str, place: list[str]) -> Hashable:
    domain = place[0]
    if len(place) == 1:
        return frozen({name: value for name, value in entries.items() if _domain(name, driver) == domain})
    qualified = frozen(entries.get(f"{domain}/{place[1]}"))
    return (qualified, frozen(entries.get(place[1]))) if domain == driver else qualified


def _domain(name: str, driver: str) -> str:
    domain, slash, _ = name.partition("/")
    return domain if slash else driver


def frozen(value: object) -> Hashable:
    """A hashable value that is equal for equal JSON (and tells true from 1)."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), frozen(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(frozen(each) for each in value)
    return (type(value).__name__, value) if isinstance(value, Hashable) else repr(value)


def _hint(cause: CelError) -> str:
    return " (use .? with orValue(), or has(), where a device may lack it)" if "no such key" in cause.message else ""
