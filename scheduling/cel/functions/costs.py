"""What a call costs when it is evaluated: the numbers of cel-go's cost tracker and of the API server.

Three rules are asked in this order: trackers of single overloads (lists, sets), the API server's costs by the name
of the function, cel-go's own by overload. What none of them knows costs one unit. The overload is empty where the
static types left several possible: then only the rules by name apply, however the call is dispatched.

Sizes are of values as cel-go sees them; a failed argument or result (a `Fault`) has size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from scheduling.cel.declarations.overloads import COMPARABLE
from scheduling.cel.mappings import map_keys
from scheduling.cel.prices import AUTHORIZATION_CHECK, LIST, MESSAGE, NOMINAL, PARSERS, REGEX, TEXT, TEXT_ORDERS
from scheduling.cel.ranges import UNBOUNDED
from scheduling.cel.values import (
    LIST_TYPES,
    MAP_TYPES,
    Opaque,
    Stop,
    Value,
    elements,
    is_list,
    list_size,
    size_of,
    spend,
    utf8,
)

Cost = Callable[[Sequence[Value], Value], int]


def _one(_arguments: Sequence[Value], _result: Value) -> int:
    return 1


def _first(arguments: Sequence[Value], _result: Value) -> int:
    return ceil(size_of(arguments[0]) * TEXT)


def _first_twice(arguments: Sequence[Value], _result: Value) -> int:
    return ceil(size_of(arguments[0]) * 2 * TEXT)


def _second(arguments: Sequence[Value], _result: Value) -> int:
    return ceil(size_of(arguments[1]) * TEXT)


def _result_twice(_arguments: Sequence[Value], result: Value) -> int:
    return ceil(size_of(result) * 2 * TEXT)


def _traversal(arguments: Sequence[Value], _result: Value) -> int:
    return _whole(arguments[0])


def _regex(arguments: Sequence[Value], _result: Value) -> int:
    return ceil((1.0 + size_of(arguments[0])) * TEXT) * ceil(size_of(arguments[1]) * REGEX)


def _smaller(arguments: Sequence[Value], _result: Value) -> int:
    return ceil(min(size_of(arguments[0]), size_of(arguments[1])) * TEXT)


def _both(arguments: Sequence[Value], _result: Value) -> int:
    return ceil((size_of(arguments[0]) + size_of(arguments[1])) * TEXT)


def _product(arguments: Sequence[Value], _result: Value) -> int:
    return ceil(size_of(arguments[0]) * TEXT) * ceil(size_of(arguments[1]) * TEXT)


def _elements(arguments: Sequence[Value], _result: Value) -> int:
    return size_of(arguments[1])


def _network(*, twice: bool, parses: bool) -> Cost:
    def cost(arguments: Sequence[Value], _result: Value) -> int:
        size = size_of(arguments[0])
        units = ceil((size + size) * TEXT)
        if twice:
            units += ceil(size * TEXT) + 1
        if parses:
            units += ceil(size_of(arguments[1]) * TEXT)
        return units

    return cost


def _authorization_check(_arguments: Sequence[Value], _result: Value) -> int:
    return AUTHORIZATION_CHECK


def _requirements(arguments: Sequence[Value], _result: Value) -> int:
    """A text of selectors is read into a list of requirements, of two characters at least each."""
    size = size_of(arguments[1])
    return LIST + ceil(size * TEXT) + ceil(size * 0.5) * (LIST + MESSAGE)


def _validate(arguments: Sequence[Value], _result: Value) -> int:
    longest = getattr(arguments[0], "regex_size", None)
    if type(longest) is not int:
        return 1
    return ceil((1.0 + size_of(arguments[1])) * TEXT) * ceil(longest * REGEX)


def equality(left: Value, right: Value) -> int:
    """Units of `==`: one for Kubernetes' own types on the left, else a tenth of the smaller size."""
    if isinstance(left, Opaque):
        return 1
    return ceil(min(size_of(left), size_of(right)) * TEXT)


def _bounded(units: int) -> int:
    return min(units, UNBOUNDED)


def _list_result(_arguments: Sequence[Value], result: Value) -> int:
    return size_of(result) + 1 + LIST


def _flatten(arguments: Sequence[Value], _result: Value) -> int:
    depth = 1
    if len(arguments) == 2:
        if type(arguments[1]) is not int:
            raise Stop("internal error: the depth of flatten is no int")
        depth = arguments[1]
    return _bounded(int(float(size_of(arguments[0])) * float(max(depth, 1) if depth < 0 else depth))) + 1 + LIST


def _self_comparison(position: int) -> Cost:
    def cost(arguments: Sequence[Value], _result: Value) -> int:
        compared = arguments[position]
        if not is_list(compared):
            raise Stop("internal error: sorting what is no list")
        size = list_size(compared)
        factor = 2.0
        if size and type(elements(compared)[0]) in (str, bytes):
            factor += TEXT
        return int(float(size * size) * factor) + 1 + LIST

    return cost


def _sets(factor: float) -> Cost:
    def cost(arguments: Sequence[Value], _result: Value) -> int:
        return int(float(size_of(arguments[0]) * size_of(arguments[1])) * factor) + 1

    return cost


def _whole(value: Value) -> int:
    """The API server's cost of going through a whole value: a tenth per byte, one for anything small."""
    total = 0
    pending: list[Value] = [value]
    while pending:
        each = pending.pop()
        kind = type(each)
        if kind is str:
            total += int(len(utf8(each)) * TEXT)  # type: ignore[arg-type]
        elif kind is bytes:
            total += int(len(each) * TEXT)  # type: ignore[arg-type]
        elif kind in LIST_TYPES:
            inner = elements(each)
            spend(len(inner))
            pending.extend(inner)
        elif kind in MAP_TYPES:
            spend(len(each))  # type: ignore[arg-type]
            pending.extend(map_keys(each))
            pending.extend(each.values())  # type: ignore[attr-defined]
        else:
            total += 1
    return total


_TRACKED: Mapping[str, Cost] = {
    "list_slice": _list_result,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _list_result,
    "list_reverse": _list_result,
    "list_distinct": _self_comparison(0),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
} | {
    f"list_{name}_{ending}": _self_comparison(position)
    for name in (of.name for _, of in COMPARABLE)
    for ending, position in (("sort", 0), ("sortByAssociatedKeys", 1))
}

_BY_NAME: Mapping[str, Cost] = (
    dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversal)
    | dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _first)
    | dict.fromkeys(("replace", "split"), _first_twice)
    | {"join": _result_twice}
    | dict.fromkeys(("find", "findAll"), _regex)
    | dict.fromkeys(PARSERS, _first)
    | {"ip.isCanonical": _first_twice, "validate": _validate, "check": _authorization_check}
    | dict.fromkeys(("fieldSelector", "labelSelector"), _requirements)
    | dict.fromkeys(NOMINAL, _one)
    | {
        "containsIP": _network(twice=False, parses=False),
        "containsCIDR": _network(twice=True, parses=False),
    }
)

_BY_NAME_AND_OVERLOAD: dict[str, Cost] = {
    "cidr_ip": _one,
    "cidr_contains_ip_string": _network(twice=False, parses=True),
    "cidr_contains_cidr_string": _network(twice=True, parses=True),
}

_BY_OVERLOAD: Mapping[str, Cost] = (
    dict.fromkeys(("starts_with_string", "ends_with_string"), _second)
    | dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _first)
    | dict.fromkeys(TEXT_ORDERS, _smaller)
    | dict.fromkeys(("add_string", "add_bytes"), _both)
    | dict.fromkeys(("matches", "matches_string"), _regex)
    | {"in_list": _elements, "contains_string": _product}
)


def cost_of(function: str, overload: str) -> Cost | None:
    """The rule for a call of `function`, `overload` empty when the checker could not choose; None is one unit."""
    tracked = _TRACKED.get(overload)
    if tracked is not None:
        return tracked
    special = _BY_NAME_AND_OVERLOAD.get(overload)
    if special is not None:
        return special
    named = _BY_NAME.get(function)
    if named is not None:
        return None if named is _one else named
    return _BY_OVERLOAD.get(overload)
