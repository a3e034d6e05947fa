"""Closures of calls: evaluating the arguments, failing as cel-go fails, and charging.

With one or two arguments all of them are evaluated and the call is charged even when one failed. With more, or where
an implementation takes all arguments at once (`variadic`), evaluation stops at the first failed argument and the call
is charged only if that was the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from scheduling.cel.frame import UNSET, Frame, Run, charge
from scheduling.cel.library.prices import TEXT, Cost
from scheduling.cel.library.standard import equality, equality_cost, smaller_cost
from scheduling.cel.relations import equal
from scheduling.cel.values import Fault, Function, TooExpensive, Value, size_of

_LONGEST_KEPT = 1000
"""A result of constants is kept up to this size; what is longer is made anew each time."""


def unary(node: int, argument: Run, call: Function, cost: Cost | None) -> Run:
    """A call with one argument."""

    def run(frame: Frame) -> Value:
        value: Value = UNSET
        try:
            value = argument(frame)
            result = call(value)
        except Fault as fault:
            fault.node = fault.node or node
            charge(frame, 1 if cost is None else cost((fault if value is UNSET else value,), fault))
            raise
        frame.cost += 1 if cost is None else cost((value,), result)
        if frame.cost > frame.limit:
            raise TooExpensive
        return result

    return run


def _charge_failed(frame: Frame, cost: Cost | None, fault: Fault, arguments: tuple[Value, Value], second: Run) -> None:
    """Charge for a call with two arguments that failed; an argument that is unset failed or was not evaluated."""
    left, right = arguments
    if left is UNSET:
        left = fault
        try:
            right = second(frame)
        except Fault as other:
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
        except Fault as fault:
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
            except Fault as fault:
                if position == last:
                    charge(frame, 1 if cost is None else cost([*values, fault], fault))
                raise
        try:
            result = call(*values)
        except Fault as fault:
            fault.node = fault.node or node
            charge(frame, 1 if cost is None else cost(values, fault))
            raise
        charge(frame, 1 if cost is None else cost(values, result))
        return result

    return run


def constant_call(node: int, arguments: Sequence[Value], call: Function, cost: Cost | None) -> Run:
    """A call whose arguments are constants: made once, charged every time."""
    known: list[tuple[Value, int]] = []

    def once() -> tuple[Value, int]:
        if known:
            return known[0]
        try:
            result = call(*arguments)
        except Fault as fault:
            fault.node = fault.node or node
            result = fault
        units = 1 if cost is None else cost(arguments, result)
        if size_of(result) <= _LONGEST_KEPT:
            known.append((result, units))
        return result, units

    def run(frame: Frame) -> Value:
        result, units = once()
        charge(frame, units)
        if isinstance(result, Fault):
            raise Fault(result.message, result.node)
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
        except Fault as fault:
            fault.node = fault.node or node
            _charge_failed(frame, equality_cost, fault, (left, right), second)
            raise
        charge(frame, equality(left, right))
        return result

    return run


def differs(node: int, first: Run, second: Run) -> Run:
    """`!=`: true too for values whose comparison is an error."""

    def different(left: Value, right: Value) -> Value:
        try:
            return not equal(left, right)
        except Fault:
            return True

    return binary(node, first, second, different, smaller_cost)


def member_of(argument: Run, members: frozenset[object], key: Callable[[Value], object]) -> Run:
    """`x in [...]` with constants: costs nothing, as upstream makes a set of them."""

    def run(frame: Frame) -> Value:
        return key(argument(frame)) in members

    return run


def not_strictly_false(argument: Run) -> Run:
    """The condition of `all` and `exists`: an error does not end the loop."""

    def run(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except Fault:
            value = True
        charge(frame, 1)
        return value is not False

    return run
