"""Macros: calls that the parser replaces by longer expressions.

Which exist is part of the environment: those of the specification, `cel.bind`, those of optional values, those with two
variables, and `sortBy`. A macro is known by its name, the number of its arguments and whether it is called on
something; with another number of arguments it is an ordinary call, for the checker to judge. All of them end in
`Comprehension` nodes whose shape (which node, in which place) is that of Kubernetes' library, since costs are counted
on it.

The accumulator's name starts with `@`, which no source can write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from scheduling.cel.syntax import Call, Comprehension, Expr, Identifier, ListLiteral, Literal, MapLiteral, Select

ACCUMULATOR = "@result"
UNUSED = "#unused"
"""Loop variable of a fold that never runs: what `cel.bind` becomes."""

_SORT_INPUT = "@__sortBy_input__"
_RESERVED = frozenset({ACCUMULATOR, "__result__"})


class NodeFactory(Protocol):
    """Numbers the nodes that a macro makes, all at the place of the macro's call."""

    def number(self) -> int:
        """A new node's number."""

    def duplicate(self, node: Expr) -> Expr:
        """The same expression with numbers of its own."""


class MacroMisused(Exception):
    """The arguments do not fit the macro: `node` is the one that is wrong."""

    def __init__(self, node: Expr, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


Expander = Callable[[NodeFactory, Expr | None, tuple[Expr, ...]], Expr | None]
"""Gives the replacement; None means that this is no call of the macro after all. Raises `MacroMisused`."""

Key = tuple[str, int, bool]
"""Name, number of arguments, called on something."""


def _true(builder: NodeFactory) -> Expr:
    return Literal(builder.number(), True)


def _call(builder: NodeFactory, function: str, *arguments: Expr) -> Expr:
    return Call(builder.number(), function, None, arguments)


def _result(builder: NodeFactory) -> Expr:
    return Identifier(builder.number(), ACCUMULATOR)


def _variable(node: Expr) -> str:
    if not isinstance(node, Identifier):
        raise MacroMisused(node, "this argument names a variable of the macro and must be a simple name")
    if node.name in _RESERVED:
        raise MacroMisused(node, f"a variable of a macro cannot be named '{node.name}'")
    return node.name


def _variables(arguments: tuple[Expr, ...], count: int) -> tuple[str, str]:
    first = _variable(arguments[0])
    if count == 1:
        return first, ""
    second = _variable(arguments[1])
    if first == second:
        raise MacroMisused(arguments[1], f"both variables of the macro are named '{first}'")
    return first, second


def _has(builder: NodeFactory, _target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
    node = arguments[0]
    if not isinstance(node, Select):
        raise MacroMisused(node, 'it needs a field selection like has(a.b); other keys are tested by "key" in a')
    return Select(builder.number(), node.operand, node.field, test_only=True)


def _fold(  # noqa: PLR0917 (the parts of a comprehension, in its order)
    builder: NodeFactory,
    target: Expr | None,
    variables: tuple[str, str],
    initial: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
) -> Expr:
    assert target is not None
    return Comprehension(builder.number(), target, *variables, ACCUMULATOR, initial, condition, step, result)


def _all(count: int) -> Expander:
    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        variables = _variables(arguments, count)
        initial = _true(builder)
        condition = _call(builder, "@not_strictly_false", _result(builder))
        step = _call(builder, "_&&_", _result(builder), arguments[count])
        return _fold(builder, target, variables, initial, condition, step, _result(builder))

    return expand


def _exists(count: int) -> Expander:
    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        variables = _variables(arguments, count)
        initial = Literal(builder.number(), False)
        condition = _call(builder, "@not_strictly_false", _call(builder, "!_", _result(builder)))
        step = _call(builder, "_||_", _result(builder), arguments[count])
        return _fold(builder, target, variables, initial, condition, step, _result(builder))

    return expand


def _exists_one(count: int) -> Expander:
    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        variables = _variables(arguments, count)
        initial = Literal(builder.number(), 0)
        condition = _true(builder)
        more = _call(builder, "_+_", _result(builder), Literal(builder.number(), 1))
        step = _call(builder, "_?_:_", arguments[count], more, _result(builder))
        result = _call(builder, "_==_", _result(builder), Literal(builder.number(), 1))
        return _fold(builder, target, variables, initial, condition, step, result)

    return expand


def _list(count: int) -> Expander:
    """`map(x, f)`, `map(x, p, f)` and, with two variables, `transformList`."""

    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        variables = _variables(arguments, count)
        initial = ListLiteral(builder.number(), ())
        condition = _true(builder)
        step = _call(builder, "_+_", _result(builder), ListLiteral(builder.number(), (arguments[-1],)))
        step = _filtered(builder, arguments[count:-1], step)
        return _fold(builder, target, variables, initial, condition, step, _result(builder))

    return expand


def _filter(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
    variables = _variables(arguments, 1)
    initial = ListLiteral(builder.number(), ())
    condition = _true(builder)
    step = _call(builder, "_+_", _result(builder), ListLiteral(builder.number(), (arguments[0],)))
    step = _filtered(builder, arguments[1:], step)
    return _fold(builder, target, variables, initial, condition, step, _result(builder))


def _filtered(builder: NodeFactory, predicate: tuple[Expr, ...], step: Expr) -> Expr:
    return _call(builder, "_?_:_", predicate[0], step, _result(builder)) if predicate else step


def _map(*, entries: bool) -> Expander:
    """`transformMap` (keeps the key) and `transformMapEntry` (the last argument is a map to merge)."""

    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        variables = _variables(arguments, 2)
        initial = MapLiteral(builder.number(), ())
        condition = _true(builder)
        added = (arguments[-1],) if entries else (Identifier(builder.number(), variables[0]), arguments[-1])
        step = _call(builder, "cel.@mapInsert", _result(builder), *added)
        step = _filtered(builder, arguments[2:-1], step)
        return _fold(builder, target, variables, initial, condition, step, _result(builder))

    return expand


def _bound(builder: NodeFactory, variable: str, value: Expr, body: Expr) -> Expr:
    """`body` with a name for `value`: a fold over nothing whose accumulator is the name."""
    nothing = ListLiteral(builder.number(), ())
    never = Literal(builder.number(), False)
    step = Identifier(builder.number(), variable)
    return Comprehension(builder.number(), nothing, UNUSED, "", variable, value, never, step, body)


def _simple_name(node: Expr, macro: str) -> str:
    if not isinstance(node, Identifier):
        raise MacroMisused(node, f"the variable of {macro}() must be a simple name")
    return node.name


def _bind(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr | None:
    if not isinstance(target, Identifier) or target.name != "cel":
        return None
    return _bound(builder, _simple_name(arguments[0], "cel.bind"), arguments[1], arguments[2])


def _optional(name: str, *, flat: bool) -> Expander:
    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        assert target is not None
        variable = _simple_name(arguments[0], name)
        present = Call(builder.number(), "hasValue", target, ())
        value = Call(builder.number(), "value", builder.duplicate(target), ())
        mapped = _bound(builder, variable, value, arguments[1])
        if not flat:
            mapped = _call(builder, "optional.of", mapped)
        return _call(builder, "_?_:_", present, mapped, _call(builder, "optional.none"))

    return expand


def _sort_by(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
    assert target is not None
    if not isinstance(target, (ListLiteral, Select, Identifier, Comprehension, Call)):
        raise MacroMisused(target, "sortBy() can only be called on a list")
    keys = _list(1)(builder, Identifier(builder.number(), _SORT_INPUT), arguments)
    assert keys is not None
    ordered = Call(builder.number(), "@sortByAssociatedKeys", Identifier(builder.number(), _SORT_INPUT), (keys,))
    return _bound(builder, _SORT_INPUT, target, ordered)


MACROS: Mapping[Key, Expander] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all(1),
    ("all", 3, True): _all(2),
    ("exists", 2, True): _exists(1),
    ("exists", 3, True): _exists(2),
    ("exists_one", 2, True): _exists_one(1),
    ("exists_one", 3, True): _exists_one(2),
    ("existsOne", 3, True): _exists_one(2),
    ("map", 2, True): _list(1),
    ("map", 3, True): _list(1),
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _list(2),
    ("transformList", 4, True): _list(2),
    ("transformMap", 3, True): _map(entries=False),
    ("transformMap", 4, True): _map(entries=False),
    ("transformMapEntry", 3, True): _map(entries=True),
    ("transformMapEntry", 4, True): _map(entries=True),
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _optional("optMap", flat=False),
    ("optFlatMap", 2, True): _optional("optFlatMap", flat=True),
    ("sortBy", 2, True): _sort_by,
}
"""Every macro of the device environment. Stored and new expressions have the same ones since Kubernetes 1.34."""
