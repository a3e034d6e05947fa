"""The worst-case cost of one call of a function, by function and overload.

Three sources that Kubernetes asks in this order: the estimates that cel-go's libraries of lists and sets bring for
their overloads (`of_overload`), those of the API server for functions by name (`of_function`), and those of cel-go for
the language itself (`of_language`). What none of them knows costs one unit. Costs are those of the call alone, without
its arguments; the operators that do not evaluate all of their arguments are estimated where the tree is walked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.cel.declarations.authorization import TYPES as AUTHORIZATION_TYPES
from scheduling.cel.prices import AUTHORIZATION_CHECK, LIST, MESSAGE, NOMINAL, PARSERS, REGEX, TEXT, TEXT_ORDERS
from scheduling.cel.ranges import NOTHING, ONE, UNBOUNDED, UNKNOWN, Range, exactly
from scheduling.cel.sizes import size_of
from scheduling.cel.syntax import Expr, Literal
from scheduling.cel.types import CIDR, IP, QUANTITY, SEMVER, Kind, Type

_FORMAT_REGEX = 128  # longest regular expression of a named format
_FORMAT_NAME = 64  # longest name of a format
_ADDRESS = Range(4, 16)  # bytes of an address
_TEXTS = frozenset((Kind.STRING, Kind.BYTES))
_CHEAP_EQUALITY = frozenset(each.name for each in (QUANTITY, SEMVER, IP, CIDR, *AUTHORIZATION_TYPES))


@dataclass(frozen=True, slots=True)
class Operand:
    """A target or an argument. `path` is empty if it is no part of a variable; `size` is None if not known."""

    expression: Expr
    type: Type
    path: Sequence[str]
    size: Range | None

    def known(self) -> Range:
        """The size as far as it is known already."""
        return self.size or UNKNOWN

    def range(self) -> Range:
        """The size, looked up by the path where it is not known otherwise."""
        return self.size or size_of(self.path) or UNKNOWN


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """The cost of a call and the size of its result, None where nothing is known of that."""

    cost: Range
    size: Range | None = None


def of_overload(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    """The estimate that a library of cel-go has for one of its overloads."""
    if overload.startswith("list_sets_"):
        factor = 2.0 if overload == "list_sets_equivalent_list" else 1.0
        return CallEstimate((arguments[0].range() * arguments[1].range()).times(factor) + ONE)
    if overload == "lists_range":
        return _new_list(1, exactly(_number(arguments[0], UNBOUNDED)))
    if target is None:
        return None
    size = target.range()
    match overload:
        case "list_slice":
            start, end = _number(arguments[0], 0), _number(arguments[1], size.most)
            return _new_list(1, exactly((end - start) % 2**64))
        case "list_flatten" | "list_flatten_int":
            return _new_list(float(_number(arguments[0], UNBOUNDED)) if arguments else 1, size)
        case "list_reverse":
            return _new_list(1, size)
        case "list_distinct":
            return _new_list(2, size * size)
    if overload.startswith("list_") and overload.endswith(("_sort", "_sortByAssociatedKeys")):
        keys = arguments[0].range() if arguments else size
        element = overload.split("_")[1]
        return _new_list(2 + TEXT if element in {"string", "bytes"} else 2, keys * keys)
    return None


def of_function(
    function: str, overload: str, target: Operand | None, arguments: Sequence[Operand]
) -> CallEstimate | None:
    """The estimate that the API server has for a function."""
    if function in NOMINAL or function in _AUTHORIZER or (function == "ip" and overload == "cidr_ip"):
        return CallEstimate(ONE)
    if function in PARSERS and arguments:
        return CallEstimate(arguments[0].range().times(TEXT))
    match function:
        case "ip.isCanonical" if arguments:
            return CallEstimate(arguments[0].range().times(2 * TEXT))
        case "url" | "jsonpatch.escapeKey" if len(arguments) == 1:
            return CallEstimate(arguments[0].range().times(TEXT), arguments[0].range())
        case "validate" if arguments:
            return CallEstimate(arguments[0].range().times(TEXT).times(_FORMAT_REGEX * REGEX))
        case "containsIP" | "containsCIDR" if arguments:
            return _containment(overload, arguments[0])
        case "check":
            return CallEstimate(exactly(AUTHORIZATION_CHECK))
        case "fieldSelector" | "labelSelector" if len(arguments) == 1:
            size = arguments[0].range()
            return CallEstimate(exactly(LIST) + size.times(TEXT) + size.times(0.5).times(LIST + MESSAGE))
        case "_==_" if len(arguments) == 2:
            return _equality(arguments[0], arguments[1])
    return None if target is None else _of_text_or_list(function, target, arguments)


def of_language(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    """The estimate for functions of the language itself; None for those of one unit."""
    if overload in TEXT_ORDERS or overload in {"equals", "not_equals"}:
        most = min(arguments[0].known().most, arguments[1].known().most)
        return CallEstimate(Range(1 if most else 0, most).times(TEXT))
    match overload:
        case "string_format" if target is not None:
            return CallEstimate(target.known().times(TEXT))
        case "string_to_bytes":  # every character may become four bytes; the bound wraps around at 64 bits
            size = arguments[0].known()
            return CallEstimate(size.times(TEXT), Range(size.least, size.most * 4 % 2**64))
        case "bytes_to_string":
            size = arguments[0].known()
            return CallEstimate(size.times(TEXT), Range(size.least // 4, size.most))
        case "strings_quote":
            size = arguments[0].known()
            return CallEstimate(size.times(TEXT), Range((size.least + 2) % 2**64, (size.most * 2 + 2) % 2**64))
        case "starts_with_string" | "ends_with_string":
            return CallEstimate(arguments[0].known().times(TEXT))
        case "in_list":
            return CallEstimate(arguments[1].known().times(1))
        case "matches" | "matches_string":
            text, pattern = arguments if target is None else (target, arguments[0])
            return CallEstimate((text.known() + ONE).times(TEXT) * pattern.known().times(REGEX))
        case "contains_string" if target is not None:
            return CallEstimate(target.known().times(TEXT) * arguments[0].known().times(TEXT))
        case "add_string" | "add_bytes" | "add_list":
            size = arguments[0].known() + arguments[1].known()
            return CallEstimate(ONE if overload == "add_list" else size.times(TEXT), size)
    return None


_AUTHORIZER = frozenset(
    (
        *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name"),
        *("allowed", "reason", "error", "errored"),
    )
)
"""Functions of one unit that fail in a selector, which has no authorizer."""


def _of_text_or_list(function: str, target: Operand, arguments: Sequence[Operand]) -> CallEstimate | None:
    size = target.range()
    match function:
        case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes":
            return _scan(function, target)
        case "lowerAscii" | "upperAscii" | "substring" | "trim":
            return CallEstimate(size.times(TEXT), size)
        case "replace" if len(arguments) >= 2:
            result = _replaced(size, arguments[0].range(), arguments[1].range())
            return CallEstimate(size.times(2 * TEXT), result)
        case "split":
            most = size.most
            limit = arguments[1].expression if len(arguments) > 1 else None
            if isinstance(limit, Literal) and type(limit.value) is int:
                most = limit.value % 2**64
            return CallEstimate(size.times(2 * TEXT), Range(0, most))
        case "join":
            return _join(target, arguments)
        case "find" | "findAll" if arguments:
            cost = (size + ONE).times(TEXT) * arguments[0].range().times(REGEX)
            return CallEstimate(cost, Range(0, size.most))
    return None


def _scan(function: str, target: Operand) -> CallEstimate:
    """One comparison per element, and reading the elements where they are texts; or reading the target, a text."""
    element = _element(target)
    if element is not None:
        each = ONE
        if element.type.kind in _TEXTS:
            each += element.range().times(TEXT)
        return CallEstimate(target.range() * each)
    if function == "includes":
        return CallEstimate(target.range() * ONE)
    return CallEstimate(target.range().times(TEXT))


def _element(target: Operand) -> Operand | None:
    """What the target is a list of; None if it is no list."""
    if not target.type.parameters:
        return None
    path = (*target.path, "@items") if target.path else ()
    return Operand(target.expression, target.type.parameters[0], path, None)


def _join(target: Operand, arguments: Sequence[Operand]) -> CallEstimate:
    count = target.range()
    element = _element(target)
    size = count * element.range() if element is not None else NOTHING
    if arguments:
        size += arguments[0].range() * Range(max(count.least - 1, 0), max(count.most - 1, 0))
    return CallEstimate(size.times(TEXT), size)


def _replaced(text: Range, old: Range, new: Range) -> Range:
    """The size of a text in which every `old` became `new`."""
    kept_most, kept_least = 0, 0
    if old.least == 0:  # an empty text stands between all characters
        most, kept_most = min(text.most + 1, UNBOUNDED), text.most
    elif new.most <= old.least:
        most, kept_most = 0, text.most
    else:
        most = _parts(text.most, old.least)
    if old.most == 0:
        least, kept_least = min(text.least + 1, UNBOUNDED), text.least
    elif old.most <= new.least:
        least, kept_least = 0, text.least
    else:
        least = _parts(text.least, old.most)
    return Range(least, most) * new + Range(kept_least, kept_most)


def _parts(size: int, part: int) -> int:
    count = math.ceil(float(size) / float(part))
    return count if count < 2**64 else 2**63  # what the conversion of a float that is too large gives on amd64


def _containment(overload: str, other: Operand) -> CallEstimate:
    """Two addresses are compared; a network is masked before; a text is read before."""
    cost = (_ADDRESS + _ADDRESS).times(TEXT)
    if overload.startswith("cidr_contains_cidr"):
        cost += _ADDRESS.times(TEXT) + ONE
    if overload in {"cidr_contains_ip_string", "cidr_contains_cidr_string"}:
        cost += other.range().times(TEXT)
    return CallEstimate(cost)


def _equality(left: Operand, right: Operand) -> CallEstimate | None:
    """Equality of Kubernetes' own types."""
    name = left.type.name
    if name != right.type.name:
        return None
    if name in _CHEAP_EQUALITY:
        return CallEstimate(ONE)
    if name == "kubernetes.NamedFormat":
        return CallEstimate(Range(1, _FORMAT_NAME).times(TEXT))
    if name == "kubernetes.URL":
        most = right.size.most if right.size is not None else 1
        return CallEstimate(Range(1, most).times(TEXT))
    return None


def _new_list(factor: float, size: Range) -> CallEstimate:
    """A new list of that size, with some units per element."""
    return CallEstimate(size.times(factor) + exactly(1 + LIST), size)


def _number(operand: Operand, otherwise: int) -> int:
    """The value of an argument that was written as an int; a negative one counts as 0."""
    literal = operand.expression
    if isinstance(literal, Literal) and type(literal.value) is int:
        return max(literal.value, 0)
    return otherwise
