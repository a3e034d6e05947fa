"""The extension for lists as sets: every question compares each element with each, as its price says."""

from __future__ import annotations

from scheduling.cel.library.function import Library, function
from scheduling.cel.library.prices import ONE, CallEstimate, Price
from scheduling.cel.library.standard import contains
from scheduling.cel.types import BOOL, list_of, parameter
from scheduling.cel.values import WORK_LIMIT, TooExpensive, Value, elements, list_size, size_of


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


def _compares(factor: float) -> Price:
    """The price of comparing each element of one list with each of the other, `factor` times."""
    return Price(
        lambda arguments, _result: int(float(size_of(arguments[0]) * size_of(arguments[1])) * factor) + 1,
        lambda operands: CallEstimate((operands[0].range() * operands[1].range()).times(factor) + ONE),
    )


_LIST = list_of(parameter("T"))

_ONCE, _TWICE = _compares(1.0), _compares(2.0)

LIBRARY: Library = (
    function("sets.contains", "list_sets_contains_list", _LIST, _LIST, result=BOOL, call=_contains, price=_ONCE),
    function("sets.equivalent", "list_sets_equivalent_list", _LIST, _LIST, result=BOOL, call=_equivalent, price=_TWICE),
    function("sets.intersects", "list_sets_intersects_list", _LIST, _LIST, result=BOOL, call=_intersects, price=_ONCE),
)
