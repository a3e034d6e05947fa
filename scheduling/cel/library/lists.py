"""Libraries of lists: Kubernetes' own (`sum`, `min`, `indexOf`, ...), and cel-go's extension in its third version
(`sort`, `distinct`, ...), which came to Kubernetes in 1.34; and the extension for lists as sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Literal

from scheduling.cel import values
from scheduling.cel.library.function import COMPARABLE as COMPARABLE_TYPES
from scheduling.cel.library.function import A, Library, Overload, function, method
from scheduling.cel.library.prices import (
    LIST,
    ONE,
    SCANS,
    TEXT,
    UNBOUNDED,
    CallEstimate,
    CallOperand,
    Cost,
    CostRange,
    Price,
    exactly,
    scan,
    traversal,
)
from scheduling.cel.library.standard import add, contains
from scheduling.cel.relations import COMPARABLE, compare, equal
from scheduling.cel.types import BOOL, BYTES, DYN, INT, STRING, Type, list_of, parameter
from scheduling.cel.values import (
    CelFault,
    Duration,
    Stop,
    TooExpensive,
    Unsigned,
    Value,
    elements,
    is_list,
    list_size,
    no_such_overload,
    size_of,
    spend,
)

_LONGEST_RANGE = 1_000_000
_ZEROES: dict[str, Value] = {"int": 0, "uint": Unsigned(0), "double": 0.0, "duration": Duration(0)}


def _order(left: Value, right: Value) -> int | None:
    """The order of two values, None when they have none."""
    try:
        return compare(left, right)
    except CelFault:
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
        total = zero
        for each in elements(entries):
            total = add(total, each)
        return total

    return call


def _extreme(name: str, worse: Literal[-1, 1]) -> Callable[[Value], Value]:
    def call(entries: Value) -> Value:
        whole = elements(entries)
        if not whole:
            raise CelFault(f"{name} called on empty list")
        best = _comparable(whole[0])
        for each in whole[1:]:
            if _order(best, _comparable(each)) == worse:
                best = each
        return best

    return call


def _same(left: Value, right: Value) -> bool:
    try:
        return equal(left, right)
    except CelFault:
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
        raise CelFault(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelFault(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if list_size(entries) < end:
        raise CelFault(f"cannot slice({start}, {end}), list is length {list_size(entries)}")
    return elements(entries)[start:end]


def _flatten(entries: Value, depth: Value = 1) -> Value:
    if not is_list(entries) or type(depth) is not int:
        raise no_such_overload("flatten", entries)
    if depth < 0:
        raise CelFault("level must be non-negative")
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
    """The elements, for comparing all with all. Raises TooExpensive for more than any cost limit allows."""
    if list_size(entries) ** 2 > values.WORK_LIMIT:
        raise TooExpensive
    return elements(entries)


def _sort_by_keys(entries: Value, keys: Value) -> Value:
    if not is_list(entries) or not is_list(keys):
        raise no_such_overload("sort", entries, keys)
    whole, by = _quadratic(entries), _quadratic(keys)
    if len(whole) != len(by):
        raise CelFault(f"the list has {len(whole)} elements and {len(by)} keys to sort by")
    if not whole:
        return entries
    if type(by[0]) not in COMPARABLE:
        raise CelFault("list elements must be comparable")
    if len(by) > 1 and any(type(each) is not type(by[0]) for each in by):
        raise CelFault("list elements must have the same type")
    pairs = list(zip(by, whole, strict=True))
    pairs.sort(key=cmp_to_key(_by_first))
    return [each for _, each in pairs]


def _by_first(left: tuple[Value, Value], right: tuple[Value, Value]) -> int:
    return _order(left[0], right[0]) or 0


def _range(count: int) -> Value:
    if count < 0:
        raise CelFault(f"lists.range: size must be non-negative, got {count}")
    if count > _LONGEST_RANGE:
        raise CelFault(f"lists.range: size {count} exceeds maximum allowed ({_LONGEST_RANGE})")
    return list(range(count))


def _reverse(entries: Value) -> Value:
    return elements(entries)[::-1]


def _distinct(entries: Value) -> Value:
    unique: list[Value] = []
    for each in _quadratic(entries):
        if not any(_same(each, other) for other in unique):
            unique.append(each)
    return unique


def _list_cost(_arguments: Sequence[Value], result: Value) -> int:
    return size_of(result) + 1 + LIST


def _flatten_cost(arguments: Sequence[Value], _result: Value) -> int:
    depth = 1
    if len(arguments) == 2:
        if type(arguments[1]) is not int:
            raise Stop("internal error: the depth of flatten is not an int")
        depth = arguments[1]
    units = int(float(size_of(arguments[0])) * float(max(depth, 1) if depth < 0 else depth))
    return min(units, UNBOUNDED) + 1 + LIST


def _comparing_cost(position: int) -> Cost:
    """Units of comparing all elements of an argument with all of them."""

    def cost(arguments: Sequence[Value], _result: Value) -> int:
        compared = arguments[position]
        if not is_list(compared):
            raise Stop("internal error: sorting a value that is not a list")
        size = list_size(compared)
        factor = 2.0
        if size and type(elements(compared)[0]) in (str, bytes):
            factor += TEXT
        return int(float(size * size) * factor) + 1 + LIST

    return cost


def _new_list(factor: float, size: CostRange) -> CallEstimate:
    """A new list of that size, with some units per element."""
    return CallEstimate(size.times(factor) + exactly(1 + LIST), size)


def _slice_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    start, end = operands[1].number(0), operands[2].number(operands[0].range().most)
    return _new_list(1, exactly((end - start) % 2**64))


def _flatten_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    return _new_list(float(operands[1].number(UNBOUNDED)) if len(operands) > 1 else 1, operands[0].range())


def _includes_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    target = operands[0]
    return CallEstimate(target.range() * ONE) if target.element() is None else scan(operands)


def _compares_all(position: int, factor: float) -> Price:
    """The price of comparing all elements of an argument with all of them, at worst `factor` units each time."""
    return Price(
        _comparing_cost(position),
        lambda operands: _new_list(factor, operands[position].range() * operands[position].range()),
    )


def _sorts(keys: Type, position: int) -> Price:
    return _compares_all(position, 2 + TEXT if keys in (STRING, BYTES) else 2)


_SLICES = Price(_list_cost, _slice_estimate)
_FLATTENS = Price(_flatten_cost, _flatten_estimate)
_RANGES = Price(_list_cost, lambda operands: _new_list(1, exactly(operands[0].number(UNBOUNDED))))
_REVERSES = Price(_list_cost, lambda operands: _new_list(1, operands[0].range()))
_INCLUDES = Price(traversal, _includes_estimate, by_name=True)
_T = parameter("T")
_LIST = list_of(_T)
_DYNS = list_of(DYN)


def _scanning(name: str, call: Callable[[Value], Value]) -> Library:
    """Declares a function of a list that gives one of its elements."""
    return tuple(
        method(name, f"list_{each}_{name}_{each}", list_of(of), result=of, call=call, price=SCANS)
        for each, of in COMPARABLE_TYPES
    )


def _sort(of: Type) -> Overload:
    def call(entries: Value) -> Value:
        return _sort_by_keys(entries, entries)

    whole = list_of(of)
    return method("sort", f"list_{of.name}_sort", whole, result=whole, call=call, price=_sorts(of, 0), singleton=True)


def _sort_by(of: Type) -> Overload:
    name, identifier = "@sortByAssociatedKeys", f"list_{of.name}_sortByAssociatedKeys"
    keys, price = list_of(of), _sorts(of, 1)
    return method(name, identifier, _LIST, keys, result=_LIST, call=_sort_by_keys, price=price, singleton=True)


KUBERNETES: Library = (
    *(
        method("isSorted", f"list_{each}_is_sorted_bool", list_of(of), result=BOOL, call=_is_sorted, price=SCANS)
        for each, of in COMPARABLE_TYPES
    ),
    *(
        method("sum", f"list_{each}_sum_{each}", list_of(of), result=of, call=_sum(_ZEROES[each]), price=SCANS)
        for each, of in COMPARABLE_TYPES
        if each in _ZEROES
    ),
    *_scanning("max", _extreme("max", -1)),
    *_scanning("min", _extreme("min", 1)),
    method("indexOf", "list_a_index_of_int", list_of(A), A, result=INT, call=_index_of, price=SCANS),
    method("lastIndexOf", "list_a_last_index_of_int", list_of(A), A, result=INT, call=_last_index_of, price=SCANS),
)

INCLUDES: Library = (
    method("includes", "list_includes_dyn_dyn", DYN, DYN, result=BOOL, call=_includes, price=_INCLUDES),
)
"""In the second version of Kubernetes' library (1.37), and for devices with list attributes since 1.36."""

EXTENSION: Library = (
    method("slice", "list_slice", _LIST, INT, INT, result=_LIST, call=_slice, price=_SLICES),
    method("flatten", "list_flatten", list_of(_LIST), result=_LIST, call=_flatten, price=_FLATTENS, accepts=(DYN,)),
    method("flatten", "list_flatten_int", _DYNS, INT, result=_DYNS, call=_flatten, price=_FLATTENS, accepts=(DYN, DYN)),
    *(_sort(of) for _, of in COMPARABLE_TYPES),
    *(_sort_by(of) for _, of in COMPARABLE_TYPES),
    function("lists.range", "lists_range", INT, result=list_of(INT), call=_range, price=_RANGES),
    method("reverse", "list_reverse", _LIST, result=_LIST, call=_reverse, price=_REVERSES),
    method("distinct", "list_distinct", _LIST, result=_LIST, call=_distinct, price=_compares_all(0, 2)),
)


def _bounded(left: Value, right: Value) -> None:
    if list_size(left) * list_size(right) > values.WORK_LIMIT:
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


_ONCE, _TWICE = _compares(1.0), _compares(2.0)

SETS: Library = (
    function("sets.contains", "list_sets_contains_list", _LIST, _LIST, result=BOOL, call=_contains, price=_ONCE),
    function("sets.equivalent", "list_sets_equivalent_list", _LIST, _LIST, result=BOOL, call=_equivalent, price=_TWICE),
    function("sets.intersects", "list_sets_intersects_list", _LIST, _LIST, result=BOOL, call=_intersects, price=_ONCE),
)
