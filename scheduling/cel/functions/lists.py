"""Functions of lists: Kubernetes' own (`sum`, `min`, `indexOf`, ...) and those of cel-go (`sort`, `distinct`, ...)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Literal

from scheduling.cel.declarations.overloads import COMPARABLE as COMPARABLE_TYPES
from scheduling.cel.functions.registry import Implementation, by_function
from scheduling.cel.relations import COMPARABLE, compare, equal
from scheduling.cel.types import DYN, INT, Type, list_of, parameter
from scheduling.cel.values import (
    WORK_LIMIT,
    Duration,
    Fault,
    TooExpensive,
    Unsigned,
    Value,
    elements,
    is_list,
    list_size,
    no_such_overload,
    spend,
)

_TYPES: dict[str, Type] = dict(COMPARABLE_TYPES)
_LONGEST_RANGE = 1_000_000
_ZEROES: dict[str, Value] = {"int": 0, "uint": Unsigned(0), "double": 0.0, "duration": Duration(0)}


def _order(left: Value, right: Value) -> int | None:
    """The order of two values, None when they have none."""
    try:
        return compare(left, right)
    except Fault:
        return None


def _comparable(value: Value) -> Value:
    if type(value) not in COMPARABLE:
        raise no_such_overload("", value)
    return value


def _is_sorted(entries: Value) -> Value:
    whole = elements(entries)
    for position, each in enumerate(whole):
        _comparable(each)
        if position and _order(whole[position - 1], each) == 1:
            return False
    return True


def _sum(zero: Value) -> Callable[[Value], Value]:
    def call(entries: Value) -> Value:
        add = by_function("_+_")
        total = zero
        for each in elements(entries):
            total = add(total, each)
        return total

    return call


def _extreme(name: str, worse: Literal[-1, 1]) -> Callable[[Value], Value]:
    def call(entries: Value) -> Value:
        whole = elements(entries)
        if not whole:
            raise Fault(f"{name} called on empty list")
        best = _comparable(whole[0])
        for each in whole[1:]:
            if _order(best, _comparable(each)) == worse:
                best = each
        return best

    return call


def _same(left: Value, right: Value) -> bool:
    try:
        return equal(left, right)
    except Fault:
        return False


def _index_of(entries: Value, wanted: Value) -> Value:
    for position, each in enumerate(elements(entries)):
        if _same(each, wanted):
            return position
    return -1


def _last_index_of(entries: Value, wanted: Value) -> Value:
    whole = elements(entries)
    for position in range(len(whole) - 1, -1, -1):
        if _same(whole[position], wanted):
            return position
    return -1


def _includes(target: Value, wanted: Value) -> Value:
    if is_list(target):
        return any(_same(each, wanted) for each in elements(target))
    return _same(target, wanted)


def _slice(entries: Value, start: int, end: int) -> Value:
    if start < 0 or end < 0:
        raise Fault(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise Fault(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if list_size(entries) < end:
        raise Fault(f"cannot slice({start}, {end}), list is length {list_size(entries)}")
    return elements(entries)[start:end]


def _flatten(entries: Value, depth: Value = 1) -> Value:
    if not is_list(entries) or type(depth) is not int:
        raise no_such_overload("flatten", entries)
    if depth < 0:
        raise Fault("level must be non-negative")
    flat: list[Value] = []
    pending = [(iter(elements(entries)), depth)]
    while pending:
        inner, level = pending[-1]
        spend(1)
        for each in inner:
            if is_list(each) and level > 0:
                pending.append((iter(elements(each)), level - 1))
                break
            spend(1)
            flat.append(each)
        else:
            pending.pop()
    return flat


def _quadratic(entries: Value) -> list[Value]:
    """The elements, unless what is to come compares all with all and they are too many for any cost limit."""
    if list_size(entries) ** 2 > WORK_LIMIT:
        raise TooExpensive
    return elements(entries)


def _sort_by_keys(entries: Value, keys: Value) -> Value:
    if not is_list(entries) or not is_list(keys):
        raise no_such_overload("sort", entries, keys)
    whole, by = _quadratic(entries), _quadratic(keys)
    if len(whole) != len(by):
        raise Fault(f"the list has {len(whole)} elements and {len(by)} keys to sort by")
    if not whole:
        return entries
    if type(by[0]) not in COMPARABLE:
        raise Fault("list elements must be comparable")
    if len(by) > 1 and any(type(each) is not type(by[0]) for each in by):
        raise Fault("list elements must have the same type")
    pairs = list(zip(by, whole, strict=True))
    pairs.sort(key=cmp_to_key(_by_first))
    return [each for _, each in pairs]


def _by_first(left: tuple[Value, Value], right: tuple[Value, Value]) -> int:
    return _order(left[0], right[0]) or 0


def _sort(entries: Value) -> Value:
    return _sort_by_keys(entries, entries)


def _range(count: int) -> Value:
    if count < 0:
        raise Fault(f"lists.range: size must be non-negative, got {count}")
    if count > _LONGEST_RANGE:
        raise Fault(f"lists.range: size {count} exceeds maximum allowed ({_LONGEST_RANGE})")
    return list(range(count))


def _reverse(entries: Value) -> Value:
    return elements(entries)[::-1]


def _distinct(entries: Value) -> Value:
    unique: list[Value] = []
    for each in _quadratic(entries):
        if not any(_same(each, other) for other in unique):
            unique.append(each)
    return unique


_ANY = list_of(parameter("T"))

IMPLEMENTATIONS = (
    *(
        Implementation(f"list_{name}_is_sorted_bool", "isSorted", (list_of(kind),), _is_sorted)
        for name, kind in _TYPES.items()
    ),
    *(
        Implementation(f"list_{name}_sum_{name}", "sum", (list_of(_TYPES[name]),), _sum(zero))
        for name, zero in _ZEROES.items()
    ),
    *(
        Implementation(f"list_{name}_max_{name}", "max", (list_of(kind),), _extreme("max", -1))
        for name, kind in _TYPES.items()
    ),
    *(
        Implementation(f"list_{name}_min_{name}", "min", (list_of(kind),), _extreme("min", 1))
        for name, kind in _TYPES.items()
    ),
    Implementation("list_a_index_of_int", "indexOf", (list_of(DYN), DYN), _index_of),
    Implementation("list_a_last_index_of_int", "lastIndexOf", (list_of(DYN), DYN), _last_index_of),
    Implementation("list_includes_dyn_dyn", "includes", (DYN, DYN), _includes),
    Implementation("list_slice", "slice", (_ANY, INT, INT), _slice),
    Implementation("list_flatten", "flatten", (DYN,), _flatten),
    Implementation("list_flatten_int", "flatten", (DYN, DYN), _flatten),
    Implementation("lists_range", "lists.range", (INT,), _range),
    Implementation("list_reverse", "reverse", (_ANY,), _reverse),
    Implementation("list_distinct", "distinct", (_ANY,), _distinct),
    *(Implementation(f"list_{kind.name}_sort", "sort", (DYN,), _sort, singleton=True) for kind in _TYPES.values()),
    *(
        Implementation(
            f"list_{kind.name}_sortByAssociatedKeys", "@sortByAssociatedKeys", (DYN, DYN), _sort_by_keys, singleton=True
        )
        for kind in _TYPES.values()
    ),
)
