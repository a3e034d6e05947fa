"""Constraints: CEL over one flat map `device`, from the name of an attribute to its value.

`device.vendor == 'example.com'` reads the attribute vendor. Pool and device attributes are one map, the device's win. A
version is a text. A quantity is there (`has(device.memory)`) but cannot be used: whoever touches its value gets an
error, as in the prototype, because its engine had no quantities. Everything else is the language that ResourceClaims
have (`scheduling.cel`), functions of Kubernetes included.

Programs are kept for the texts used last, and results for devices with equal attributes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache

from scheduling.api.excerpts import excerpt
from scheduling.api.quantities import Quantity
from scheduling.cel.checked import Checked
from scheduling.cel.checker import check
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelEnvironment, CelFeatures, environment
from scheduling.cel.errors import InvalidExpression
from scheduling.cel.frame import Frame
from scheduling.cel.interpreter import EvaluationPlan, PlanFault, plan
from scheduling.cel.parser import parse
from scheduling.cel.program import DEFAULT_LIMIT, SelectorCondition, account
from scheduling.cel.reads import selections
from scheduling.cel.selections import no_such_key
from scheduling.cel.syntax import Expr, children, place_at
from scheduling.cel.types import DYN, STRING, Type, map_of
from scheduling.cel.validators import validate
from scheduling.cel.values import (
    CelFault,
    Domains,
    Opaque,
    Optional,
    Stop,
    Texts,
    TooExpensive,
    Value,
    refill,
    type_name,
)
from scheduling.pools.documents import PoolAttribute

_REMEMBERED = 1_000
_REMEMBERED_DEVICES = 10_000
"""Sets of attributes for which one constraint remembers its outcome."""
_NO_KEY = "no such key: "


class ConstraintFault(Enum):
    """Why a constraint gives neither true nor false."""

    COMPILE = "compile"
    """The text is not an expression of the language."""
    UNKNOWN_ATTRIBUTE = "unknown-attribute"
    """It reads an attribute that the device does not have."""
    QUANTITY = "quantity"
    """It uses the value of a quantity."""
    NOT_BOOL = "not-bool"
    """Its result is neither true nor false."""
    RUNTIME = "runtime"
    """Anything else that fails while it is evaluated, such as comparing a text with a number."""


class ConstraintError(Exception):
    """A constraint that failed. `text` is the constraint."""

    def __init__(self, text: str, fault: ConstraintFault, message: str) -> None:
        super().__init__(f'constraint "{excerpt(text)}": {message}')
        self.text = text
        self.fault = fault
        self.message = message


class _Untouchable(Opaque):
    """The value of a quantity: any use of it fails."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def cel_type(self) -> Type:  # type: ignore[override]
        """Every choice of an overload asks for the type."""
        raise _QuantityTouched(self.name)

    def cel_equal(self, other: Value) -> bool:
        raise _QuantityTouched(self.name)


class _QuantityTouched(CelFault):
    def __init__(self, name: str) -> None:
        super().__init__(f"attribute {name} is a quantity, whose value constraints cannot use; request it as an amount")


class DeviceFacts(CelDevice):
    """The attributes of one device, merged, as constraints see them. Immutable.

    attributes of one name: the last that has a value counts. `key` is equal for devices with equal attributes.
    """

    __slots__ = ("__dict__", "values")

    def __init__(self, attributes: Iterable[PoolAttribute]) -> None:
        self.fault = ""
        self.values: Mapping[str, PoolAttribute] = {each.name: each for each in attributes if each.value is not None}
        entries = {name: self._entry(name, each) for name, each in self.values.items()}
        self.variable = Texts(entries)

    @cached_property
    def key(self) -> Hashable:
        """Equal for devices with equal attributes."""
        return frozenset((name, each.kind, each.value) for name, each in self.values.items())

    def _entry(self, name: str, attribute: PoolAttribute) -> Value:
        value = attribute.value
        return _Untouchable(name) if isinstance(value, Quantity) else value

    # The evaluator takes short cuts to these four entries of a ResourceSlice's device. Here they are attributes like
    # any others, which may be missing or no maps.
    @property
    def driver(self) -> Value:  # type: ignore[override]
        """The attribute `driver`."""
        return self._attribute("driver")

    @property
    def multiple(self) -> Value:  # type: ignore[override]
        """The attribute `allowMultipleAllocations`."""
        return self._attribute("allowMultipleAllocations")

    @property
    def attributes(self) -> Domains:  # type: ignore[override]
        """The attribute `attributes`, which is never a map."""
        self._attribute("attributes")
        return Domains()

    @property
    def capacity(self) -> Domains:  # type: ignore[override]
        """The attribute `capacity`, which is never a map."""
        self._attribute("capacity")
        return Domains()

    def _attribute(self, name: str) -> Value:
        if name not in self.variable:
            raise no_such_key(name)
        return self.variable[name]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a constraint for a device: true, false, or the error instead."""

    result: bool
    error: ConstraintError | None = None


class PoolConstraint:
    """One compiled constraint, for all devices."""

    def __init__(self, text: str) -> None:
        """Raises ConstraintError if the text is no expression."""
        self.text = text
        self._checked = _checked(text)
        self._outcomes: dict[Hashable, Outcome] = {}
        self._plan: EvaluationPlan | None = None
        self._failed: ConstraintError | None = None
        try:
            self._plan = plan(self._checked)
        except PlanFault as fault:
            self._failed = self._error(ConstraintFault.RUNTIME, fault.message)

    def outcome(self, device: DeviceFacts) -> Outcome:
        """What the constraint says about a device."""
        found = self._outcomes.get(device.key)
        if found is None:
            try:
                found = Outcome(self._evaluate(device))
            except ConstraintError as error:
                found = Outcome(result=False, error=error)
            if len(self._outcomes) < _REMEMBERED_DEVICES:
                self._outcomes[device.key] = found
        return found

    @cached_property
    def reads(self) -> frozenset[str] | None:
        """The attributes that it can read, None if it uses the device as a whole."""
        paths = [each.path for each in selections(self._checked.ast.root)]
        return None if () in paths else frozenset(path[0] for path in paths)

    def conditions(self, device: DeviceFacts) -> tuple[SelectorCondition, ...]:
        """The operands of the outermost `&&`, each evaluated alone, with the attributes that it reads."""
        return account(self._checked, device)

    def _evaluate(self, device: DeviceFacts) -> bool:
        if self._plan is None:
            assert self._failed is not None
            raise self._failed
        frame = Frame(device, DEFAULT_LIMIT, self._plan.slots)
        try:
            return self._truth(self._plan.run(frame))
        except CelFault as fault:
            raise self._classified(fault, device) from fault
        except TooExpensive as stop:
            raise self._error(ConstraintFault.RUNTIME, f"it costs more than {DEFAULT_LIMIT} units") from stop
        except Stop as stop:
            raise self._error(ConstraintFault.RUNTIME, stop.message) from stop
        except RecursionError as error:
            raise self._error(ConstraintFault.RUNTIME, "it is nested too deeply") from error
        finally:
            refill()

    def _truth(self, result: Value) -> bool:
        while type(result) is Optional and result.present:
            result = result.get()
        if isinstance(result, bool):
            return result
        raise self._error(ConstraintFault.NOT_BOOL, f"it must be true or false, but is of type {type_name(result)}")

    def _classified(self, fault: CelFault, device: DeviceFacts) -> ConstraintError:
        if isinstance(fault, _QuantityTouched):
            return self._error(ConstraintFault.QUANTITY, fault.message)
        if fault.message.startswith(_NO_KEY):
            name = fault.message.removeprefix(_NO_KEY)
            advice = f"the device has no attribute {name}; guard it with has(device.{name})"
            return self._error(ConstraintFault.UNKNOWN_ATTRIBUTE, advice)
        touched = self._quantity_at(fault.node, device)
        if touched is not None:
            return self._error(ConstraintFault.QUANTITY, _QuantityTouched(touched).message)
        message = fault.message
        if message.startswith("no such overload"):
            message = f"an operator or function got a value of a wrong type, such as a text beside a number ({message})"
        return self._error(ConstraintFault.RUNTIME, message)

    def _quantity_at(self, number: int, device: DeviceFacts) -> str | None:
        """The quantity that the failed node was given: operators fail without asking for its type."""
        pending = [self._checked.ast.root]
        while pending:
            node = pending.pop()
            if node.id == number:
                return _quantity_in(node, device)
            pending.extend(children(node))
        return None

    def _error(self, fault: ConstraintFault, message: str) -> ConstraintError:
        return ConstraintError(self.text, fault, message)


def _quantity_in(node: Expr, device: DeviceFacts) -> str | None:
    for operand in children(node):
        for each in selections(operand):
            name = each.path[0] if each.path else ""
            if each.node is operand and isinstance(device.variable.get(name), _Untouchable):
                return name
    return None


@lru_cache(maxsize=1)
def _environment() -> CelEnvironment:
    usual = environment(CelFeatures())
    return replace(usual, names={**usual.names, "device": map_of(STRING, DYN)})


def _checked(text: str) -> Checked:
    try:
        found = check(parse(text), _environment())
        issues = tuple(validate(found))
    except InvalidExpression as fault:
        issues = fault.issues
    except (RecursionError, Stop) as error:
        raise ConstraintError(text, ConstraintFault.COMPILE, "the expression is nested too deeply") from error
    else:
        if not issues:
            return found
    place = place_at(text, issues[0].offset)
    message = f"{place.line}:{place.column + 1}: {issues[0].message}"
    raise ConstraintError(text, ConstraintFault.COMPILE, message)


@lru_cache(maxsize=_REMEMBERED)
def _compiled(text: str) -> PoolConstraint | ConstraintError:
    try:
        return PoolConstraint(text)
    except ConstraintError as error:
        return error


def constraint(text: str) -> PoolConstraint:
    """The compiled constraint. Raises ConstraintError, a new one each time."""
    found = _compiled(text)
    if isinstance(found, ConstraintError):
        raise ConstraintError(found.text, found.fault, found.message)
    return found


_TRUE = Outcome(result=True)


def outcome_of(text: str | None, device: DeviceFacts) -> Outcome:
    """What a constraint says about a device; none, or an empty one, is true."""
    if not text:
        return _TRUE
    found = _compiled(text)
    return Outcome(result=False, error=found) if isinstance(found, ConstraintError) else found.outcome(device)


def attributes_read(text: str) -> frozenset[str] | None:
    """The attributes that a constraint can read; None if it can read any, or is no expression."""
    found = _compiled(text)
    return None if isinstance(found, ConstraintError) else found.reads
