"""The library of the language itself: operators, `size` and the tests of strings.

Each operator is one function for all its overloads, as in cel-go: which one the checker chose matters for the cost
only. Arithmetic never wraps around: what leaves 64 bits is an error. Overloads without an implementation are compiled
by the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, copysign, inf, isnan, nan
from operator import ge, gt, le, lt

from scheduling.cel.library.authorization import TYPES as AUTHORIZATION_TYPES
from scheduling.cel.library.function import A, B, Library, Overload, function, method
from scheduling.cel.library.prices import ONE, ONE_UNIT, TEXT, CallEstimate, CallOperand, CostRange, Price
from scheduling.cel.library.times import timestamp
from scheduling.cel.relations import COMPARABLE, compare, equal, has_key
from scheduling.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    INT,
    INT_MIN,
    IP,
    NAMED_FORMAT,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    UINT,
    URL,
    Type,
    list_of,
    map_of,
)
from scheduling.cel.values import (
    TEXT_LIMIT,
    CelFault,
    Duration,
    Function,
    Opaque,
    Timestamp,
    TooExpensive,
    Unsigned,
    Value,
    checked_int,
    checked_uint,
    elements,
    is_list,
    is_map,
    join_lists,
    no_such_overload,
    size_of,
    spend,
    spend_on_text,
)


def add(left: Value, right: Value) -> Value:
    """`left + right`. Raises CelFault if they cannot be added, TooExpensive for a text beyond the limit."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left + right)  # type: ignore[operator]
        if kind is str or kind is bytes:
            length = len(left) + len(right)  # type: ignore[arg-type]
            spend_on_text(length)
            if length > TEXT_LIMIT:
                raise TooExpensive
            return left + right  # type: ignore[operator]
        if kind is float:
            return left + right  # type: ignore[operator]
        if kind is Unsigned:
            return checked_uint(left + right)  # type: ignore[operator]
        if kind is Duration:
            return Duration(checked_int(left.nanoseconds + right.nanoseconds))  # type: ignore[attr-defined]
    if is_list(left) and is_list(right):
        return join_lists(left, right)
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return timestamp(left.nanoseconds + right.nanoseconds, left.offset)
    if isinstance(left, Duration) and isinstance(right, Timestamp):
        return timestamp(left.nanoseconds + right.nanoseconds, right.offset)
    raise no_such_overload("_+_", left, right)


def _subtract(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left - right)  # type: ignore[operator]
        if kind is float:
            return left - right  # type: ignore[operator]
        if kind is Unsigned:
            return checked_uint(left - right)  # type: ignore[operator]
        if kind is Duration:
            return Duration(checked_int(left.nanoseconds - right.nanoseconds))  # type: ignore[attr-defined]
    if isinstance(left, Timestamp):
        if isinstance(right, Timestamp):
            return Duration(checked_int(left.nanoseconds - right.nanoseconds))
        if isinstance(right, Duration):
            return timestamp(left.nanoseconds - checked_int(right.nanoseconds), left.offset)
    raise no_such_overload("_-_", left, right)


def _multiply(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)  # type: ignore[operator]
        if kind is float:
            return left * right  # type: ignore[operator]
        if kind is Unsigned:
            return checked_uint(left * right)  # type: ignore[operator]
    raise no_such_overload("_*_", left, right)


def _divide(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right):
        raise no_such_overload("_/_", left, right)
    if kind is float:
        return _divide_doubles(left, right)  # type: ignore[arg-type]
    if kind is int or kind is Unsigned:
        if right == 0:
            raise CelFault("division by zero")
        quotient = _truncated(left, right)  # type: ignore[arg-type]
        return checked_int(quotient) if kind is int else Unsigned(quotient)
    raise no_such_overload("_/_", left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if isnan(left) or isnan(right) or left == 0:
        return nan
    return inf * copysign(1, left) * copysign(1, right)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right) or (kind is not int and kind is not Unsigned):
        raise no_such_overload("_%_", left, right)
    if right == 0:
        raise CelFault("modulus by zero")
    if left == INT_MIN and right == -1:
        raise CelFault("integer overflow")
    rest: int = abs(left) % abs(right)  # type: ignore[arg-type]
    if kind is Unsigned:
        return Unsigned(rest)
    return -rest if left < 0 else rest  # type: ignore[operator]


def _negate(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return checked_int(-value)  # type: ignore[operator]
    if kind is float:
        return -value  # type: ignore[operator]
    if isinstance(value, Duration):
        return Duration(checked_int(-value.nanoseconds))
    raise no_such_overload("-_", value)


def _not(value: Value) -> Value:
    if value is True:
        return False
    if value is False:
        return True
    raise no_such_overload("!_", value)


def _order(holds: Callable[[int, int], bool]) -> Callable[[Value, Value], Value]:
    def operator(left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            return holds(left, right)
        if type(left) not in COMPARABLE:
            raise no_such_overload("", left, right)
        return holds(compare(left, right), 0)

    return operator


def contains(entries: list[Value], wanted: Value) -> bool:
    """Whether an entry equals the value; a comparison that fails counts as unequal."""
    spend(len(entries) >> 3 if type(wanted) is str else len(entries))
    if type(wanted) is str:
        return wanted in entries
    for each in entries:
        try:
            if equal(wanted, each):
                return True
        except CelFault:
            continue
    return False


def _in(wanted: Value, container: Value) -> Value:
    if is_list(container):
        return contains(elements(container), wanted)
    if is_map(container):
        return has_key(container, wanted)  # type: ignore[arg-type]
    raise no_such_overload("@in", wanted, container)


def _size(value: Value) -> Value:
    if type(value) in (str, bytes) or is_list(value) or is_map(value):
        return size_of(value)
    raise no_such_overload("size", value)


def equality(left: Value, right: Value) -> int:
    """Units of `==`: one for Kubernetes' own types on the left, else a tenth of the smaller size."""
    if isinstance(left, Opaque):
        return 1
    return ceil(min(size_of(left), size_of(right)) * TEXT)


def equality_cost(arguments: Sequence[Value], _result: Value) -> int:
    """Units of `==`."""
    return equality(arguments[0], arguments[1])


def smaller_cost(arguments: Sequence[Value], _result: Value) -> int:
    """Units of reading two values up to the shorter length: `<` of strings, `!=` of anything."""
    return ceil(min(size_of(arguments[0]), size_of(arguments[1])) * TEXT)


def _smaller_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    most = min(operands[0].known().most, operands[1].known().most)
    return CallEstimate(CostRange(1 if most else 0, most).times(TEXT))


_ONE_UNIT_EQUALITY = frozenset(each.name for each in (QUANTITY, SEMVER, IP, CIDR, *AUTHORIZATION_TYPES))
_LONGEST_FORMAT_NAME = 64


def _equality_estimate(operands: Sequence[CallOperand]) -> CallEstimate:
    """The API server prices the equality of Kubernetes' own types, cel-go that of all others."""
    left, right = operands
    name = left.type.name
    if name == right.type.name:
        if name in _ONE_UNIT_EQUALITY:
            return CallEstimate(ONE)
        if name == NAMED_FORMAT.name:
            return CallEstimate(CostRange(1, _LONGEST_FORMAT_NAME).times(TEXT))
        if name == URL.name:
            return CallEstimate(CostRange(1, right.size.most if right.size is not None else 1).times(TEXT))
    return _smaller_estimate(operands)


def _joined_size(operands: Sequence[CallOperand]) -> CostRange:
    return operands[0].known() + operands[1].known()


_READS_BOTH = Price(
    lambda arguments, _result: ceil((size_of(arguments[0]) + size_of(arguments[1])) * TEXT),
    lambda operands: CallEstimate(_joined_size(operands).times(TEXT), _joined_size(operands)),
)
_READS_SMALLER = Price(smaller_cost, _smaller_estimate)
_READS_SECOND = Price(
    lambda arguments, _result: ceil(size_of(arguments[1]) * TEXT),
    lambda operands: CallEstimate(operands[1].known().times(TEXT)),
)
_READS_LIST = Price(
    lambda arguments, _result: size_of(arguments[1]), lambda operands: CallEstimate(operands[1].known().times(1))
)
_SEARCHES = Price(
    lambda arguments, _result: ceil(size_of(arguments[0]) * TEXT) * ceil(size_of(arguments[1]) * TEXT),
    lambda operands: CallEstimate(operands[0].known().times(TEXT) * operands[1].known().times(TEXT)),
)
_JOINS_LISTS = Price(None, lambda operands: CallEstimate(ONE, _joined_size(operands)))

_LIST = list_of(A)
_MAP = map_of(A, B)
_NUMBERS = (("int64", INT), ("uint64", UINT), ("double", DOUBLE))
_ALIKE = {"string": STRING, "bytes": BYTES, "timestamp": TIMESTAMP, "duration": DURATION}


def _comparison(name: str, stem: str, call: Function) -> Library:
    """An order: of bools, of numbers with numbers of any type (first their own, then as declared), of the rest."""
    rows = [(f"{stem}_bool", BOOL, BOOL, BOOL, ONE_UNIT)]
    for left, first in _NUMBERS:
        others = [(f"{stem}_{left}_{right}", of) for right, of in sorted(_NUMBERS) if right != left]
        rows += [(name, first, of, BOOL, ONE_UNIT) for name, of in ((f"{stem}_{left}", first), *others)]
    for kind, of in _ALIKE.items():
        rows.append((f"{stem}_{kind}", of, of, BOOL, _READS_SMALLER if kind in ("string", "bytes") else ONE_UNIT))
    return _operator(name, call, *rows)


def _operator(name: str, call: Function, *rows: tuple[str, Type, Type, Type, Price]) -> Library:
    return tuple(
        function(name, identifier, left, right, result=result, call=call, price=price, singleton=True)
        for identifier, left, right, result, price in rows
    )


def _arithmetic(name: str, stem: str, call: Function, **types: Type) -> Library:
    return _operator(name, call, *((f"{stem}_{each}", of, of, of, ONE_UNIT) for each, of in types.items()))


def _sizes(kind: str, of: Type) -> Library:
    return (
        function("size", f"size_{kind}", of, result=INT, call=_size, singleton=True),
        method("size", f"{kind}_size", of, result=INT, call=_size, singleton=True),
    )


def _test(name: str, identifier: str, test: Callable[[str, str], bool], price: Price) -> Overload:
    """A test of two strings, which looks at their types itself: attributes of devices are mostly of type `dyn`."""

    def call(text: Value, part: Value) -> Value:
        if type(text) is not str or type(part) is not str:
            raise no_such_overload(name, text, part)
        return test(text, part)

    return method(name, identifier, STRING, STRING, result=BOOL, call=call, price=price, singleton=True)


LIBRARY: Library = (
    function("_?_:_", "conditional", BOOL, A, A, result=A),
    function("_&&_", "logical_and", BOOL, BOOL, result=BOOL),
    function("_||_", "logical_or", BOOL, BOOL, result=BOOL),
    function("!_", "logical_not", BOOL, result=BOOL, call=_not, singleton=True),
    function("@not_strictly_false", "not_strictly_false", BOOL, result=BOOL),
    function("_==_", "equals", A, A, result=BOOL, price=Price(equality_cost, _equality_estimate)),
    function("_!=_", "not_equals", A, A, result=BOOL, price=_READS_SMALLER),
    *_operator(
        "_+_",
        add,
        ("add_bytes", BYTES, BYTES, BYTES, _READS_BOTH),
        ("add_double", DOUBLE, DOUBLE, DOUBLE, ONE_UNIT),
        ("add_duration_duration", DURATION, DURATION, DURATION, ONE_UNIT),
        ("add_duration_timestamp", DURATION, TIMESTAMP, TIMESTAMP, ONE_UNIT),
        ("add_timestamp_duration", TIMESTAMP, DURATION, TIMESTAMP, ONE_UNIT),
        ("add_int64", INT, INT, INT, ONE_UNIT),
        ("add_list", _LIST, _LIST, _LIST, _JOINS_LISTS),
        ("add_string", STRING, STRING, STRING, _READS_BOTH),
        ("add_uint64", UINT, UINT, UINT, ONE_UNIT),
    ),
    *_operator(
        "_-_",
        _subtract,
        ("subtract_double", DOUBLE, DOUBLE, DOUBLE, ONE_UNIT),
        ("subtract_duration_duration", DURATION, DURATION, DURATION, ONE_UNIT),
        ("subtract_int64", INT, INT, INT, ONE_UNIT),
        ("subtract_timestamp_duration", TIMESTAMP, DURATION, TIMESTAMP, ONE_UNIT),
        ("subtract_timestamp_timestamp", TIMESTAMP, TIMESTAMP, DURATION, ONE_UNIT),
        ("subtract_uint64", UINT, UINT, UINT, ONE_UNIT),
    ),
    *_arithmetic("_*_", "multiply", _multiply, double=DOUBLE, int64=INT, uint64=UINT),
    *_arithmetic("_/_", "divide", _divide, double=DOUBLE, int64=INT, uint64=UINT),
    *_arithmetic("_%_", "modulo", _modulo, int64=INT, uint64=UINT),
    function("-_", "negate_double", DOUBLE, result=DOUBLE, call=_negate, singleton=True),
    function("-_", "negate_int64", INT, result=INT, call=_negate, singleton=True),
    *_comparison("_<_", "less", _order(lt)),
    *_comparison("_<=_", "less_equals", _order(le)),
    *_comparison("_>_", "greater", _order(gt)),
    *_comparison("_>=_", "greater_equals", _order(ge)),
    function("_[_]", "index_list", _LIST, INT, result=A),
    function("_[_]", "index_map", _MAP, A, result=B),
    function("@in", "in_list", A, _LIST, result=BOOL, call=_in, price=_READS_LIST, singleton=True),
    function("@in", "in_map", A, _MAP, result=BOOL, call=_in, singleton=True),
    *_sizes("bytes", BYTES),
    *_sizes("list", _LIST),
    *_sizes("map", _MAP),
    *_sizes("string", STRING),
    _test("contains", "contains_string", lambda text, part: part in text, _SEARCHES),
    _test("endsWith", "ends_with_string", str.endswith, _READS_SECOND),
    _test("startsWith", "starts_with_string", str.startswith, _READS_SECOND),
)
