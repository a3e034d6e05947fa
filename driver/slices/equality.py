"""Whether two pieces of a slice mean the same to the API server.

Absent, null and empty are one for lists, mappings and plain fields; a pointer is set or not; quantities count by value
(``1Gi`` is ``1024Mi``); order in lists counts. Fields that this version does not know are compared as they stand. The
walk follows the shapes of ``scheduling.api.validation`` over the JSON itself and makes no typed copy: nearly always two
devices are equal as they stand, and pools have thousands.

Taints have a rule of their own (KEP-5055): a time that only one side has does not count, and a second of rounding
either way does not either, because the server sets times that are left out and stores whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from scheduling.api.quantities import QuantityError, of_json
from scheduling.api.validation.shapes import (
    DEVICE,
    NODE_SELECTOR,
    QUANTITY,
    SLICE_SPEC,
    TIME,
    ListOf,
    MapOf,
    Scalar,
    Shape,
    Type,
    zero,
)

_DEVICES: Final = ListOf(DEVICE)
_COUNTERS: Final = SLICE_SPEC.fields["sharedCounters"].type
_ROUNDING: Final = timedelta(seconds=1)


def devices_deep_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Tell whether two lists of v1 devices are the same, taints by the rule above."""
    return _same(list(left), list(right), _DEVICES, lenient=True)


def devices_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Tell whether two lists of v1 devices are the same, times of taints included."""
    return _same(list(left), list(right), _DEVICES, lenient=False)


def counters_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Tell whether two lists of counter sets are the same."""
    return _same(list(left), list(right), _COUNTERS, lenient=False)


def selectors_equal(left: object, right: object) -> bool:
    """Tell whether two node selectors, or None, are the same."""
    if left is None or right is None:
        return left is right
    return _same(left, right, NODE_SELECTOR, lenient=False)


def instant(text: object) -> datetime | None:
    """The moment that an RFC 3339 time says, in UTC; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _same(left: Any, right: Any, type_: Type, *, lenient: bool) -> bool:
    if left is right or (left == right and type(left) is type(right)):
        return True
    if isinstance(type_, Scalar):
        return _same_scalar(left, right, type_)
    if isinstance(type_, ListOf):
        left, right = left or [], right or []
        if not (isinstance(left, list) and isinstance(right, list)) or len(left) != len(right):
            return False
        return all(_same(a, b, type_.item, lenient=lenient) for a, b in zip(left, right, strict=True))
    left, right = {} if left is None else left, {} if right is None else right
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return False
    if isinstance(type_, MapOf):
        if left.keys() != right.keys():
            return False
        return all(_same(value, right[name], type_.item, lenient=lenient) for name, value in left.items())
    return all(
        _same_field(name, left.get(name), right.get(name), type_, lenient=lenient)
        for name in left.keys() | right.keys()
    )


def _same_field(name: str, left: Any, right: Any, shape: Shape, *, lenient: bool) -> bool:
    field = shape.fields.get(name)
    if field is None:
        return (left or None) == (right or None)
    if lenient and name == "timeAdded":
        return left is None or right is None or _close(left, right)
    if field.pointer and not isinstance(field.type, ListOf | MapOf) and (left is None) != (right is None):
        return False
    return _same(left, right, field.type, lenient=lenient)


def _same_scalar(left: Any, right: Any, type_: Scalar) -> bool:
    if type_ is QUANTITY:
        try:
            return of_json(left) == of_json(right)
        except QuantityError:
            return False
    if type_ is TIME:
        first, second = instant(left), instant(right)
        return first is not None and first == second
    nothing = zero(type_)
    left, right = nothing if left is None else left, nothing if right is None else right
    return bool(left == right) and type(left) is type(right)


def _close(left: object, right: object) -> bool:
    first, second = instant(left), instant(right)
    if first is None or second is None:
        return left == right
    return abs(first - second) <= _ROUNDING
