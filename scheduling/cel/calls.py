"""Closures of calls: evaluating the arguments, failing as cel-go fails, and charging.

With one or two arguments all of them are evaluated and the call is charged even when one failed. With more, or where
an implementation takes all arguments at once (`variadic`), evaluation stops at the first failed argument and the call
is charged only if that was the last one.

Where the checker could not choose an overload, the types of the values do. The rule is cel-go's: a value is accepted by
the name of its type, a container by its first entry besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from scheduling.cel.frame import UNSET, Frame, Run, charge
from scheduling.cel.library.function import Overload
from scheduling.cel.library.prices import TEXT, Cost
from scheduling.cel.library.standard import equality, equality_cost, smaller_cost
from scheduling.cel.relations import equal, integer_keys, map_key, unmap_key
from scheduling.cel.types import Type, TypeKind
from scheduling.cel.values import (
    CelFault,
    Function,
    TooExpensive,
    TypeValue,
    Value,
    elements,
    is_list,
    is_map,
    list_size,
    no_such_overload,
    size_of,
    type_name,
)

_LONGEST_KEPT = 1000
"""A result of constants is kept up to this size; a larger one is computed each time."""


def unary(node: int, argument: Run, call: Function, cost: Cost | None) -> Run:
    """A call with one argument."""

    def run(frame: Frame) -> Value:
        value: Value = UNSET
        try:
            value = argument(frame)
            result = call(value)
        except CelFault as fault:
            fault.node = fault.node or node
            charge(frame, 1 if cost is None else cost((fault if value is UNSET else value,), fault))
            raise
        frame.cost += 1 if cost is None else cost((value,), result)
        if frame.cost > frame.limit:
            raise TooExpensive
        return result

    return run


def _charge_failed(
    frame: Frame, cost: Cost | None, fault: CelFault, arguments: tuple[Value, Value], second: Run
) -> None:
    """Charge for a call with two arguments that failed; an argument that is unset failed or was not evaluated."""
    left, right = arguments
    if left is UNSET:
        left = fault
        try:
            right = second(frame)
        except CelFault as other:
            right = other
    elif right is UNSET:
        right = fault
    charge(frame, 1 if cost is None else cost((left, right), fault))


def binary(node: int, first: Run, second: Run, call: Function, cost: Cost | None) -> Run:
    """A call with two arguments."""

    def run(frame: Frame) -> Value:
        left: Value = UNSET
        right: Value = UNSET
        try:
            left = first(frame)
            right = second(frame)
            result = call(left, right)
        except CelFault as fault:
            fault.node = fault.node or node
            _charge_failed(frame, cost, fault, (left, right), second)
            raise
        frame.cost += 1 if cost is None else cost((left, right), result)
        if frame.cost > frame.limit:
            raise TooExpensive
        return result

    return run


def variadic(node: int, arguments: Sequence[Run], call: Function, cost: Cost | None) -> Run:
    """A call that stops at the first failed argument."""
    last = len(arguments) - 1

    def run(frame: Frame) -> Value:
        values: list[Value] = []
        for position, each in enumerate(arguments):
            try:
                values.append(each(frame))
            except CelFault as fault:
                if position == last:
                    charge(frame, 1 if cost is None else cost([*values, fault], fault))
                raise
        try:
            result = call(*values)
        except CelFault as fault:
            fault.node = fault.node or node
            charge(frame, 1 if cost is None else cost(values, fault))
            raise
        charge(frame, 1 if cost is None else cost(values, result))
        return result

    return run


def constant_call(node: int, arguments: Sequence[Value], call: Function, cost: Cost | None) -> Run:
    """A call whose arguments are constants: called once, charged every time."""
    known: list[tuple[Value, int]] = []

    def once() -> tuple[Value, int]:
        if known:
            return known[0]
        try:
            result = call(*arguments)
        except CelFault as fault:
            fault.node = fault.node or node
            result = fault
        units = 1 if cost is None else cost(arguments, result)
        if size_of(result) <= _LONGEST_KEPT:
            known.append((result, units))
        return result, units

    def run(frame: Frame) -> Value:
        result, units = once()
        charge(frame, units)
        if isinstance(result, CelFault):
            raise CelFault(result.message, result.node)
        return result

    return run


def equals(node: int, first: Run, second: Run) -> Run:
    """`==`."""

    def run(frame: Frame) -> Value:
        left: Value = UNSET
        right: Value = UNSET
        try:
            left = first(frame)
            right = second(frame)
            if type(left) is str and type(right) is str:
                result = left == right
                length = min(len(left), len(right))
                frame.cost += (1 if length else 0) if length <= 10 else ceil(length * TEXT)
                if frame.cost > frame.limit:
                    raise TooExpensive
                return result
            result = equal(left, right)
        except CelFault as fault:
            fault.node = fault.node or node
            _charge_failed(frame, equality_cost, fault, (left, right), second)
            raise
        charge(frame, equality(left, right))
        return result

    return run


def differs(node: int, first: Run, second: Run) -> Run:
    """`!=`, which is also true for values whose comparison is an error."""

    def different(left: Value, right: Value) -> Value:
        try:
            return not equal(left, right)
        except CelFault:
            return True

    return binary(node, first, second, different, smaller_cost)


def member_of(argument: Run, members: frozenset[object], key: Callable[[Value], object]) -> Run:
    """`x in [...]` with constants, which costs nothing because cel-go makes a set of them."""

    def run(frame: Frame) -> Value:
        return key(argument(frame)) in members

    return run


def not_strictly_false(argument: Run) -> Run:
    """The condition of `all` and `exists`: an error does not end the loop."""

    def run(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except CelFault:
            value = True
        charge(frame, 1)
        return value is not False

    return run


def members_of(entries: Value) -> frozenset[object] | None:
    """The members of a constant list as keys, with all numbers that equal them; None for lists of other values."""
    if not is_list(entries):
        return None
    members: set[object] = set()
    for each in elements(entries):
        if not isinstance(each, bool | int | float | str):
            return None
        members.add(map_key(each))
        if not isinstance(each, str | bool):
            members.update(integer_keys(each))
            members.add(map_key(float(each)))
    return frozenset(members)


_ANYTHING = frozenset((TypeKind.DYN, TypeKind.ANY, TypeKind.PARAMETER))


def accepts(declared: Type, value: Value) -> bool:
    """Whether a value fits the declared type of an argument; only the first entry of a container is checked."""
    kind = declared.kind
    while kind is TypeKind.LIST:
        if not is_list(value):
            return False
        if not list_size(value):
            return True
        value = elements(value)[0]
        declared = declared.parameters[0]
        kind = declared.kind
    if kind in _ANYTHING:
        return True
    if kind is TypeKind.MAP:
        if not is_map(value):
            return False
        for stored, entry in value.items():  # type: ignore[attr-defined]
            return accepts(declared.parameters[0], unmap_key(stored)) and accepts(declared.parameters[1], entry)
        return True
    if kind is TypeKind.TYPE:
        return type(value) is TypeValue
    return declared.name == type_name(value)


def guarded(overload: Overload, call: Function, static: Sequence[Type]) -> Function:
    """The implementation, after a check of the arguments whose types the checker did not know."""
    checks = [
        (position, declared)
        for position, (declared, known) in enumerate(zip(overload.accepts, static, strict=True))
        if declared != known and declared.kind not in _ANYTHING
    ]
    if not checks:
        return call

    def run(*arguments: Value) -> Value:
        for position, declared in checks:
            if not accepts(declared, arguments[position]):
                raise no_such_overload(overload.function, *arguments)
        return call(*arguments)

    return run


def dispatched(function: str, overloads: Sequence[tuple[Overload, Function]], count: int) -> Function:
    """Chooses among several implementations by the types at run time."""
    candidates = [each for each in overloads if len(each[0].accepts) == count]

    def run(*arguments: Value) -> Value:
        for overload, call in candidates:
            if all(accepts(declared, value) for declared, value in zip(overload.accepts, arguments, strict=True)):
                return call(*arguments)
        raise no_such_overload(function, *arguments)

    return run
