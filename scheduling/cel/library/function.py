"""How a library declares a function: one entry has its signature, its implementation and its price.

A library is a module of this package with a tuple `LIBRARY` of overloads. Adding a function is adding an entry:

    method("trim", "string_trim", STRING, result=STRING, call=_trim, price=COPIES_TEXT)

The identifier of an overload is cel-go's; the checker, the planner and both prices know the overload by it. The order
of a function's overloads matters: the checker keeps it, and the type of an ambiguous call is that of the first overload
that fits.

The contract for an implementation:
- It gets run-time values (see `values`), the target first, and returns one. It may trust their types as far as
  `accepts` names them, and no further: an element of a list can be of any type.
- It raises `values.CelFault` for an evaluation error, which `&&` and `||` may swallow. For a wrong type that `accepts`
  let through it raises `values.no_such_overload(name, ...)`.
- It is pure: the planner calls it once where all arguments are constants.
- It is bounded: time and memory are in proportion to the sizes of arguments and result, as the price is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypedDict, TypeVar, Unpack

from scheduling.cel.library.prices import ONE_UNIT, Price
from scheduling.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, Type, TypeKind, parameter
from scheduling.cel.values import CelFault, Function, Value

A = parameter("A")
B = parameter("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One way to call a function; a name with a dot is a function with a namespace.

    `arguments`: the declared types; for a method the type of the target comes first. `call`: None for what the planner
    compiles itself (`&&`, `==`, indexes). `accepts`: the types that are checked at run time where the static ones were
    not enough, if they differ from the declared ones (`DYN` and type parameters accept everything, a list is judged by
    its first element). `singleton`: one implementation serves all overloads of its name and looks at the types itself
    (cel-go's `SingletonBinding`), so nothing is chosen by type. `parameters`: the type parameters in the signature.
    """

    function: str
    id: str
    arguments: tuple[Type, ...]
    result: Type
    method: bool
    call: Function | None = None
    price: Price = ONE_UNIT
    accepts: tuple[Type, ...] = ()
    singleton: bool = False
    variadic: bool = False
    """True where cel-go binds one function of all arguments (`FunctionBinding`, not `UnaryBinding` or `BinaryBinding`):
    evaluation stops at the first failed argument. This always holds without arguments and with three or more."""
    parameters: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names: dict[str, None] = {}
        for each in (*self.arguments, self.result):
            _collect(each, names)
        object.__setattr__(self, "parameters", tuple(names))
        object.__setattr__(self, "accepts", self.accepts or self.arguments)


Library = tuple[Overload, ...]

COMPARABLE: tuple[tuple[str, Type], ...] = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)
"""Types that have an order, as the identifiers of Kubernetes' own overloads name them."""


class _Details(TypedDict, total=False):
    """The fields of an overload that have a default."""

    call: Function
    price: Price
    accepts: tuple[Type, ...]
    singleton: bool
    variadic: bool


def function(name: str, identifier: str, *arguments: Type, result: Type, **details: Unpack[_Details]) -> Overload:
    """`name(a, b)`."""
    return Overload(function=name, id=identifier, arguments=arguments, result=result, method=False, **details)


def method(
    name: str, identifier: str, target: Type, *arguments: Type, result: Type, **details: Unpack[_Details]
) -> Overload:
    """`target.name(a)`."""
    return Overload(function=name, id=identifier, arguments=(target, *arguments), result=result, method=True, **details)


_P = ParamSpec("_P")
_R = TypeVar("_R")


def reader(read: Callable[_P, _R], wrong: type[ValueError]) -> Callable[_P, _R]:
    """The implementation of a function that reads a text; an error `wrong` of `read` becomes an evaluation error."""

    def call(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return read(*arguments, **named)
        except wrong as error:
            raise CelFault(str(error)) from error

    return call


def is_readable(read: Callable[..., Value], wrong: type[ValueError]) -> Function:
    """The implementation of the test that goes with `reader`."""

    def call(*arguments: Value) -> Value:
        try:
            read(*arguments)
        except wrong:
            return False
        return True

    return call


def _collect(of: Type, names: dict[str, None]) -> None:
    if of.kind is TypeKind.PARAMETER:
        names[of.name] = None
    for each in of.parameters:
        _collect(each, names)
