"""Closures of lists, maps and messages that an expression writes, of comprehensions, and of `&&` and `||`.

Making a list, map or message is charged whether it succeeds or not. An entry written with a question mark is left out
when its optional value is empty, and removes an earlier entry of the same key.

A fold (what `all`, `map`, `cel.bind` and the other macros become) keeps its variables in slots of the frame. Its
accumulator is made when first read; an empty list or map there is one that grows in place. A failed step leaves the
error in the accumulator, and the loop continues: a later `exists` that is true outvotes it.

`&&` and `||` give the same result in whatever order, because one operand may outvote another's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scheduling.cel.frame import UNSET, Frame, Run, charge
from scheduling.cel.library.prices import LIST, MAP, MESSAGE
from scheduling.cel.messages import make
from scheduling.cel.relations import map_key, unmap_key
from scheduling.cel.values import (
    CelFault,
    Growing,
    GrowingMap,
    Optional,
    Value,
    elements,
    is_list,
    is_map,
    no_such_overload,
    spend,
    type_name,
)


def new_list(node: int, elements: Sequence[tuple[Run, bool]]) -> Run:
    """`[a, ?b]`: each element, and whether it is optional."""

    def build(frame: Frame) -> Value:
        made: list[Value] = []
        for element, optional in elements:
            present, value = _present(element(frame), optional)
            if present:
                made.append(value)
        return made

    return _charged(build, node, LIST)


def new_map(node: int, entries: Sequence[tuple[Run, Run, bool]]) -> Run:
    """`{a: b, ?c: d}`: each key and value, and whether the entry is optional."""

    def build(frame: Frame) -> Value:
        made: dict[object, Value] = {}
        for key_of, value_of, optional in entries:
            key = key_of(frame)
            present, value = _present(value_of(frame), optional)
            if present:
                made[map_key(key)] = value
            else:
                made.pop(map_key(key), None)
        return made

    return _charged(build, node, MAP)


def new_message(node: int, name: str, fields: Sequence[tuple[str, Run, bool]]) -> Run:
    """`Name{a: b, ?c: d}`: the name and value of each field, and whether it is optional."""

    def build(frame: Frame) -> Value:
        made: dict[str, Value] = {}
        for field, value_of, optional in fields:
            present, value = _present(value_of(frame), optional)
            if present:
                made[field] = value
            else:
                made.pop(field, None)
        return make(name, made)

    return _charged(build, node, MESSAGE)


def _charged(build: Run, node: int, units: int) -> Run:
    def run(frame: Frame) -> Value:
        try:
            made = build(frame)
        except CelFault as fault:
            fault.node = fault.node or node
            charge(frame, units)
            raise
        charge(frame, units)
        return made

    return run


def _present(value: Value, optional: bool) -> tuple[bool, Value]:
    """Whether the entry has a value, and the value."""
    if not optional:
        return True, value
    if type(value) is not Optional:
        raise CelFault("cannot initialize optional entry from non-optional value")
    return value.present, value.get() if value.present else None


@dataclass(frozen=True, slots=True)
class Loop:
    """The parts of a comprehension; `second` is the slot of the second variable, None with one variable.

    `certain`: the condition is the constant true.
    """

    node: int
    range: Run
    first: int
    second: int | None
    accumulator: int
    condition: Run
    step: Run
    result: Run
    certain: bool


def fold(loop: Loop) -> Run:
    """The closure of a comprehension."""
    accumulator, result = loop.accumulator, loop.result
    rounds = _one_variable(loop) if loop.second is None else _two_variables(loop, loop.second)

    def run(frame: Frame) -> Value:
        entries = loop.range(frame)
        frame.slots[accumulator] = UNSET
        if not is_list(entries) and not is_map(entries):
            raise CelFault(f"unsupported comprehension range type: {type_name(entries)}", loop.node)
        rounds(frame, entries)
        value = result(frame)
        if type(value) is Growing:
            return list(value)
        if type(value) is GrowingMap:
            return dict(value)
        return value

    return run


def _one_variable(loop: Loop) -> Callable[[Frame, Value], None]:
    slot = loop.first
    rounds = _round(loop)

    def go(frame: Frame, entries: Value) -> None:
        slots = frame.slots
        over: Iterable[Value] = elements(entries) if is_list(entries) else map(unmap_key, entries)  # type: ignore[call-overload]
        for each in over:
            slots[slot] = each
            if not rounds(frame):
                return

    return go


def _two_variables(loop: Loop, second: int) -> Callable[[Frame, Value], None]:
    slot = loop.first
    rounds = _round(loop)

    def go(frame: Frame, entries: Value) -> None:
        over: Iterable[tuple[Value, Value]]
        if is_list(entries):
            over = enumerate(elements(entries))
        else:
            over = ((unmap_key(stored), value) for stored, value in entries.items())  # type: ignore[attr-defined]
        slots = frame.slots
        for key, value in over:
            slots[slot] = key
            slots[second] = value
            if not rounds(frame):
                return

    return go


def _round(loop: Loop) -> Callable[[Frame], bool]:
    """One round of the loop: the condition, then the step. False ends the loop."""
    accumulator, condition, step, certain = loop.accumulator, loop.condition, loop.step, loop.certain

    def go(frame: Frame) -> bool:
        spend(1)
        if not certain:
            try:
                if condition(frame) is False:
                    return False
            except CelFault:
                pass  # only a condition that is false ends the loop
        try:
            frame.slots[accumulator] = step(frame)
        except CelFault as fault:
            frame.slots[accumulator] = fault.with_traceback(None)
        return True

    return go


def junction(node: int, operands: Sequence[Run], *, decisive: bool) -> Run:
    """`&&` (False is decisive) or `||` (True is): the first decisive operand wins, then the first error."""
    neutral = not decisive

    def run(frame: Frame) -> Value:
        failed: CelFault | None = None
        for each in operands:
            try:
                value = each(frame)
            except CelFault as fault:
                failed = failed or fault
                continue
            if value is decisive:
                return decisive
            if value is not neutral and failed is None:
                failed = no_such_overload("_&&_" if neutral else "_||_", value)
                failed.node = node
        if failed is not None:
            raise failed.with_traceback(None)  # else it would grow with every round of a loop
        return neutral

    return run


def optional_or(node: int, first: Run, second: Run, *, unwrap: bool) -> Run:
    """`a.or(b)` and, with `unwrap`, `a.orValue(b)`; free of cost; `b` is evaluated only when needed."""

    def run(frame: Frame) -> Value:
        value = first(frame)
        if type(value) is not Optional:
            fault = no_such_overload("orValue" if unwrap else "or", value)
            fault.node = node
            raise fault
        if value.present:
            return value.get() if unwrap else value
        return second(frame)

    return run
