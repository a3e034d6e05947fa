"""Comprehensions: what `all`, `exists`, `map`, `filter`, `cel.bind` and the macros with two variables become.

A fold keeps its variables in slots of the frame. Its accumulator is made when first read; an empty list or map there
is one that grows in place. A failed step leaves the error in the accumulator, and the loop goes on: a later `exists`
that is true outvotes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scheduling.cel.frame import UNSET, Frame, Run
from scheduling.cel.mappings import unmap_key
from scheduling.cel.values import Fault, Growing, GrowingMap, Value, elements, is_list, is_map, spend, type_name


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
    rounds = _two_variables(loop, loop.second) if loop.second is not None else _one_variable(loop)

    def run(frame: Frame) -> Value:
        entries = loop.range(frame)
        frame.slots[accumulator] = UNSET
        try:
            rounds(frame, entries)
        except _NotIterable as error:
            raise Fault(f"unsupported comprehension range type: {error}", loop.node) from None
        value = result(frame)
        if type(value) is Growing:
            return list(value)
        if type(value) is GrowingMap:
            return dict(value)
        return value

    return run


class _NotIterable(Exception):
    """The range is neither a list nor a map."""


def _one_variable(loop: Loop) -> Callable[[Frame, Value], None]:
    slot = loop.first
    rounds = _round(loop)

    def go(frame: Frame, entries: Value) -> None:
        over: Iterable[Value]
        if is_list(entries):
            over = elements(entries)
        elif is_map(entries):
            over = (unmap_key(stored) for stored in entries)  # type: ignore[attr-defined]
        else:
            raise _NotIterable(type_name(entries))
        slots = frame.slots
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
        elif is_map(entries):
            over = ((unmap_key(stored), value) for stored, value in entries.items())  # type: ignore[attr-defined]
        else:
            raise _NotIterable(type_name(entries))
        slots = frame.slots
        for key, value in over:
            slots[slot] = key
            slots[second] = value
            if not rounds(frame):
                return

    return go


def _round(loop: Loop) -> Callable[[Frame], bool]:
    """One round: condition, then step. False ends the loop."""
    accumulator, condition, step, certain = loop.accumulator, loop.condition, loop.step, loop.certain

    def go(frame: Frame) -> bool:
        spend(1)
        if not certain:
            try:
                if condition(frame) is False:
                    return False
            except Fault:
                pass  # only a condition that is false ends the loop
        try:
            frame.slots[accumulator] = step(frame)
        except Fault as fault:
            frame.slots[accumulator] = fault.with_traceback(None)
        return True

    return go
