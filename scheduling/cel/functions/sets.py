"""Lists as sets: every question compares each with each, as its cost says."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.functions.standard import contains
from scheduling.cel.types import list_of, parameter
from scheduling.cel.values import WORK_LIMIT, TooExpensive, Value, elements, list_size


def _bounded(left: Value, right: Value) -> None:
    if list_size(left) * list_size(right) > WORK_LIMIT:
        raise TooExpensive


def _contains(whole: Value, part: Value) -> Value:
    _bounded(whole, part)
    entries = elements(whole)
    return all(contains(entries, each) for each in elements(part))


def _intersects(left: Value, right: Value) -> Value:
    _bounded(left, right)
    entries = elements(right)
    return any(contains(entries, each) for each in elements(left))


def _equivalent(left: Value, right: Value) -> Value:
    return _contains(left, right) and _contains(right, left)


_LISTS = (list_of(parameter("T")), list_of(parameter("T")))

IMPLEMENTATIONS = (
    Implementation("list_sets_contains_list", "sets.contains", _LISTS, _contains),
    Implementation("list_sets_equivalent_list", "sets.equivalent", _LISTS, _equivalent),
    Implementation("list_sets_intersects_list", "sets.intersects", _LISTS, _intersects),
)
