"""Closures that make lists, maps and messages: charged whether they succeed or not.

What is written with a question mark is left out when the optional value is empty, and takes out what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.cel.frame import Frame, Run, charge
from scheduling.cel.library.prices import LIST, MAP, MESSAGE
from scheduling.cel.mappings import map_key
from scheduling.cel.messages import make
from scheduling.cel.values import Fault, Optional, Value


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
        except Fault as fault:
            fault.node = fault.node or node
            charge(frame, units)
            raise
        charge(frame, units)
        return made

    return run


def _present(value: Value, optional: bool) -> tuple[bool, Value]:
    """Whether there is something to put in, and it."""
    if not optional:
        return True, value
    if type(value) is not Optional:
        raise Fault("cannot initialize optional entry from non-optional value")
    return value.present, value.get() if value.present else None
