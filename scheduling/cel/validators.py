"""Refuses, as Kubernetes does, what fits by names and types: literals that can only fail, and mixed collections.

These are its validators of trees: of `duration("…")`, `timestamp(…)` and regular expressions with a literal argument,
of `"…".format([…])`, and of list and map literals, whose elements must be of one type (except inside of `format`, whose
arguments are mixed by nature).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from scheduling.cel import advice
from scheduling.cel.checked import Checked
from scheduling.cel.errors import Issue
from scheduling.cel.library.conversions import int_to_timestamp, text_to_duration, text_to_timestamp
from scheduling.cel.library.regex import pattern
from scheduling.cel.syntax import Call, Expr, ListLiteral, Literal, MapLiteral, children
from scheduling.cel.types import Type, TypeKind
from scheduling.cel.unification import same, unwrapped
from scheduling.cel.values import CelFault

_PRECISION_DIGITS = 19
"""More digits than this do not fit into 64 bits."""

_K = TypeKind
_INTEGERS = frozenset((_K.INT, _K.UINT, _K.DYN))
_DOUBLES = frozenset((_K.DOUBLE, _K.STRING, _K.DYN))
_OTHERS = frozenset((_K.LIST, _K.MAP, _K.BOOL, _K.TIMESTAMP, _K.BYTES, _K.DURATION, _K.TYPE, _K.NULL))
_CLAUSES: dict[str, frozenset[TypeKind]] = {
    "s": _INTEGERS | _DOUBLES | _OTHERS,
    "d": _INTEGERS,
    "f": _DOUBLES,
    "e": _DOUBLES,
    "b": _INTEGERS | {_K.BOOL},
    "x": _INTEGERS | {_K.STRING, _K.BYTES},
    "X": _INTEGERS | {_K.STRING, _K.BYTES},
    "o": _INTEGERS,
}
"""The types that each clause of `format` accepts."""


def validate(checked: Checked) -> list[Issue]:
    """The issues of an expression, in order of their places. Raises `library.regex.MissingLibrary`."""
    found: list[tuple[int, str]] = []
    waiting: list[tuple[Expr, bool]] = [(checked.ast.root, False)]
    while waiting:
        node, exempt = waiting.pop()
        if isinstance(node, Call):
            found += _call(checked, node)
            exempt = exempt or node.function == "format"
        elif isinstance(node, ListLiteral) and not exempt:
            found += _list(checked, node)
        elif isinstance(node, MapLiteral) and not exempt:
            found += _map(checked, node)
        waiting.extend((each, exempt) for each in children(node))
    offsets = checked.ast.offsets
    issues = [Issue(offsets.get(number, 0), message) for number, message in found]
    return sorted(issues, key=attrgetter("offset"))


def _call(checked: Checked, node: Call) -> Iterator[tuple[int, str]]:
    first = node.arguments[0] if node.arguments else None
    if node.function == "format" and isinstance(node.target, Literal) and isinstance(first, ListLiteral):
        yield from _format(checked, node, node.target, first)
    if not isinstance(first, Literal):
        return
    try:
        if node.function in ("duration", "timestamp"):
            _converted(node.function, first.value)
        elif node.function == "matches" and isinstance(first.value, str):
            # Of matches(text, pattern) Kubernetes looks at the first argument too, which is the text.
            pattern(first.value)
    except CelFault as fault:
        what = "matches() needs a regular expression" if node.function == "matches" else f"{node.function}() fails"
        yield first.id, f"{what}: {fault.message}"


def _converted(function: str, value: object) -> object:
    """Converts a constant. Raises `values.CelFault` for one that the conversion does not read."""
    if type(value) is str:
        return text_to_duration(value) if function == "duration" else text_to_timestamp(value)
    if type(value) is int and function == "timestamp":
        return int_to_timestamp(value)
    raise CelFault("the argument is of the wrong type")


def _list(checked: Checked, node: ListLiteral) -> Iterator[tuple[int, str]]:
    before: Type | None = None
    for index, each in enumerate(node.elements):
        of = checked.types[each.id]
        if index in node.optional:
            of = unwrapped(of)[0]
        if before is None:
            before = of
        elif not same(before, of):
            yield each.id, _mixed("elements of a list", before, of)
            return


def _map(checked: Checked, node: MapLiteral) -> Iterator[tuple[int, str]]:
    key: Type | None = None
    value: Type | None = None
    for entry in node.entries:
        keys, values = checked.types[entry.key.id], checked.types[entry.value.id]
        if entry.optional:
            values = unwrapped(values)[0]
        if key is None or value is None:
            key, value = keys, values
            continue
        if not same(key, keys):
            yield entry.key.id, _mixed("keys of a map", key, keys)
        if not same(value, values):
            yield entry.value.id, _mixed("values of a map", value, values)


def _mixed(what: str, before: Type, of: Type) -> str:
    return (
        f"the {what} must be of one type, but {advice.shown(of)} follows {advice.shown(before)}; wrap each in dyn() to "
        "mix them"
    )


# --- format


def _format(checked: Checked, node: Call, text: Literal, arguments: ListLiteral) -> Iterator[tuple[int, str]]:
    reference = checked.references.get(node.id)
    if reference is None or "string_format" not in reference.overloads or not isinstance(text.value, str):
        return
    used = 0
    for clause in _clauses(text.value):
        if used >= len(arguments.elements):
            yield node.id, f"the format has more clauses than arguments ({len(arguments.elements)})"
            return
        argument = arguments.elements[used]
        used += 1
        fits = _CLAUSES.get(clause)
        if fits is None:
            yield node.id, clause if len(clause) > 1 else f"the format has no clause '%{clause}'"
            return
        wrong = _unfit(checked, argument, fits, deep=clause == "s")
        if wrong is not None:
            of = advice.shown(checked.types[wrong.id])
            yield wrong.id, f"'%{clause}' cannot format a value of type {of}"
            return
    if used < len(arguments.elements):
        yield node.id, f"the format has {used} clauses, but {len(arguments.elements)} arguments are given"


def _clauses(text: str) -> Iterator[str]:
    """The letter of each clause, or a longer text that says what is wrong with it."""
    position = text.find("%")
    while position >= 0:
        position += 1
        if text.startswith("%", position):
            position = text.find("%", position + 1)
            continue
        if text.startswith(".", position):
            start = position = position + 1
            while position < len(text) and text[position] in "0123456789":
                position += 1
            digits = text[start:position].lstrip("0")
            if position == start or len(digits) >= _PRECISION_DIGITS:
                yield "a precision in the format is not a number"
                return
        if position >= len(text):
            yield "the format ends inside a clause; a percent sign is written '%%'"
            return
        yield text[position]
        position = text.find("%", position + 1)


def _unfit(checked: Checked, argument: Expr, fits: frozenset[TypeKind], *, deep: bool) -> Expr | None:
    """The node of an argument that a clause cannot format; for `%s` the entries of list and map literals count."""
    waiting = [argument]
    while waiting:
        node = waiting.pop()
        if checked.types[node.id].kind not in fits:
            return node
        if deep and isinstance(node, (ListLiteral, MapLiteral)):
            waiting.extend(reversed(children(node)))
    return None
