"""Messages about names and types that do not fit: what is wrong, the likely meaning, and what would fit.

Only the checker's messages are made here; what is an error is decided there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from scheduling.cel.builder import BINARY
from scheduling.cel.errors import shortened
from scheduling.cel.library.function import Overload
from scheduling.cel.types import DEVICE, Type, TypeKind

_OPERATORS = {
    **{function: sign for sign, (_, function) in BINARY.items()},
    "_&&_": "&&",
    "_||_": "||",
    "!_": "!",
    "-_": "-",
    "_[_]": "[ ]",
    "_[?_]": "[? ]",
    "_?_:_": "? :",
}

_NAMES = {
    TypeKind.ANY: "any",
    TypeKind.DURATION: "duration",
    TypeKind.TIMESTAMP: "timestamp",
    TypeKind.NULL: "null",
    TypeKind.ERROR: "(an error)",
}
_LONGEST_TYPE = 80
_MOST_SIGNATURES = 4


def shown(of: Type) -> str:
    """Writes a type as people do, cut when it is long."""
    return shortened(_shown(of, 8), _LONGEST_TYPE)


def _shown(of: Type, levels: int) -> str:
    name = _NAMES.get(of.kind, of.name)
    if not of.parameters:
        return name
    if levels == 0:
        return f"{name}(…)"
    return f"{name}({', '.join(_shown(each, levels - 1) for each in of.parameters)})"


def unknown_name(name: str, known: Iterable[str], fields: Iterable[str]) -> str:
    """Says that a name is unknown. `fields` are those of the device."""
    plain = name.removeprefix(".")
    if plain in fields:
        return f"there is no name '{name}'; did you mean 'device.{plain}'?"
    return f"there is no name '{name}'{_meant(plain, known)}"


def unknown_function(name: str, known: Iterable[str], *, method: bool) -> str:
    """Says that a function does not exist."""
    if name == "includes":
        return "there is no function 'includes' before Kubernetes 1.37 while list attributes are off"
    if name in ("contains", "has") and method:
        return f"there is no method '{name}'"
    candidates = [each for each in known if each[0] not in "_@!-" and "@" not in each]
    return f"there is no function '{name}'{_meant(name.removeprefix('.'), candidates)}"


def unknown_field(of: Type, name: str, fields: Iterable[str]) -> str:
    """Says that a message lacks a field."""
    known = sorted(fields)
    if of.kind is TypeKind.STRUCT and of.name == DEVICE.name:
        if name == "allowMultipleAllocations":
            return "devices have no field 'allowMultipleAllocations' while consumable capacity is off"
        meant = _meant(name, known)
        return (
            f"devices have no field '{name}'{meant or f': they have {_listed(known)}'}; an attribute is read as "
            f'device.attributes["<domain>"].{name if name.isidentifier() else "<name>"}'
        )
    return f"{of.name} has no field '{name}'{_meant(name, known)}"


def no_overload(function: str, types: Sequence[Type], overloads: Sequence[Overload], *, method: bool) -> str:
    """Says that a function or operator does not accept these types."""
    symbol = _OPERATORS.get(function)
    if symbol is not None:
        return _no_operator(symbol, types)
    given = ", ".join(shown(each) for each in (types[1:] if method else types))
    if method:
        what = f"'{function}' cannot be called on {shown(types[0])} with ({given})"
    else:
        what = f"'{function}' cannot be called with ({given})"
    fitting = [each for each in overloads if each.method == method]
    if not fitting:
        style = "as x.{0}(…)" if not method else "as {0}(…)"
        return f"{what}: it is written {style.format(function)}"
    signatures = [_signature(function, each) for each in fitting]
    more = f" and {len(signatures) - _MOST_SIGNATURES} more" if len(signatures) > _MOST_SIGNATURES else ""
    return f"{what}: there is {', '.join(signatures[:_MOST_SIGNATURES])}{more}"


def no_elements(of: Type) -> str:
    """Says that a macro cannot iterate over a value of the type."""
    if of.kind is TypeKind.ANY:
        return "the elements of an attribute can be used only while list attributes are on"
    return f"a value of type {shown(of)} has no elements: only lists and maps have"


def _no_operator(symbol: str, types: Sequence[Type]) -> str:
    names = [shown(each) for each in types]
    if symbol == "? :":
        if types[0].kind is not TypeKind.BOOL:
            return f"the condition before '?' is of type {names[0]}, not bool"
        return f"the values of '? :' are of different types, {names[1]} and {names[2]}; wrap them in dyn()"
    if symbol in ("==", "!="):
        return f"cannot compare {names[0]} with {names[1]} by '{symbol}'; convert one of them"
    if symbol == "in":
        return f"cannot look for {names[0]} in {names[1]}"
    if symbol.startswith("["):
        return f"cannot take an element of {names[0]} by {names[1]}"
    return f"'{symbol}' cannot be applied to {' and '.join(names)}"


def _signature(function: str, overload: Overload) -> str:
    arguments = [shown(each) for each in overload.arguments]
    if overload.method:
        return f"{arguments[0]}.{function}({', '.join(arguments[1:])})"
    return f"{function}({', '.join(arguments)})"


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{each}'" for each in names)
