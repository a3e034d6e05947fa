"""What the implementation of a function is, and where the interpreter finds it.

Every library is a module of this package with a tuple `IMPLEMENTATIONS`. The key is the identifier of an overload as
the checker hands it on (cel-go's, the ones that clusters log and count by), so that declaration and implementation meet
by name and by nothing else.

The contract for an implementation:
- `call` gets the run-time values (see `values`), target first, and returns one. It may trust their types as far as
  `accepts` names them, and nothing else: an element of a list can be of any type.
- What goes wrong is raised as `values.Fault(text)`: an evaluation error of CEL, which `&&` and `||` may swallow.
  A wrong type that `accepts` let through is `values.no_such_overload(name, ...)`.
- It is pure: the same arguments give the same result, so that calls with constant arguments are made once.
- It is bounded: time and memory are in proportion to the sizes of arguments and result, because the cost is.

Costs need nothing here as a rule: `costs` has the rules of cel-go and of the API server, by function and overload.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from scheduling.cel.types import Type
from scheduling.cel.values import Value


@dataclass(frozen=True, slots=True)
class Implementation:
    """One implementation.

    `accepts` are the declared types of the arguments, target first; they are checked at run time where the static
    types were not enough (`DYN` and type parameters accept everything, a list is judged by its first element).
    `variadic`: cel-go binds it with one function of all arguments (`FunctionBinding`, `cel.FunctionBinding(...)`, not
    `UnaryBinding` or `BinaryBinding`): then arguments after a failed one are not evaluated. That is always so without
    arguments and with three and more, and need not be said. `singleton`: one function answers for all overloads of its
    name and looks at the types itself (`SingletonBinding`), so nothing is chosen by type.
    """

    identifier: str
    function: str
    accepts: tuple[Type, ...]
    call: Callable[..., Value]
    variadic: bool = False
    singleton: bool = False


LIBRARIES = (
    "standard",
    "conversions",
    "times",
    "strings",
    "formatting",
    "regex",
    "lists",
    "sets",
    "optionals",
    "comprehensions",
    "quantity",
    "semver",
    "network",
    "urls",
    "formats",
    "authorization",
)
"""The modules of this package that hold overloads."""


@cache
def implementations() -> Mapping[str, Implementation]:
    """All implementations, by the identifier of the overload."""
    found: dict[str, Implementation] = {}
    for library in LIBRARIES:
        for each in importlib.import_module(f"scheduling.cel.functions.{library}").IMPLEMENTATIONS:
            found[each.identifier] = each
    return found


@cache
def by_function(name: str) -> Callable[..., Value]:
    """The one implementation of a function that looks at the types itself, `_+_` for example."""
    return next(each.call for each in implementations().values() if each.function == name and each.singleton)
