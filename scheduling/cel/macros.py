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

from scheduling.cel.library.function import Library, function
from scheduling.cel.relations import find, map_key, unmap_key
from scheduling.cel.syntax import Call, Comprehension, Expr, Identifier, ListLiteral, Literal, MapLiteral, Select
from scheduling.cel.types import map_of, parameter
from scheduling.cel.values import CelFault, GrowingMap, Value

ACCUMULATOR = "@result"
UNUSED = "#unused"
"""The loop variable of a fold that never runs, to which `cel.bind` expands."""

_SORT_INPUT = "@__sortBy_input__"
_RESERVED = frozenset({ACCUMULATOR, "__result__"})


class NodeFactory(Protocol):
    """Numbers the nodes that a macro makes, all at the place of the macro's call."""

    def number(self) -> int:
        """A new node's number."""

    def duplicate(self, node: Expr) -> Expr:
        """The same expression with numbers of its own."""


class MacroMisused(Exception):
    """An argument does not fit the macro; `node` is that argument."""

    def __init__(self, node: Expr, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


Expander = Callable[[NodeFactory, Expr | None, tuple[Expr, ...]], Expr | None]
"""Gives the replacement, or None if the call is not one of the macro. Raises `MacroMisused`."""

Key = tuple[str, int, bool]
"""Name, number of arguments, whether it is called on a target."""


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


_Parts = tuple[Expr, Expr, Expr, Expr]
"""The initial value, condition, step and result of a comprehension."""


def _fold(count: int, parts: Callable[[NodeFactory, tuple[Expr, ...], tuple[Expr, ...]], _Parts]) -> Expander:
    """A macro that folds its target with `count` variables; `parts` gets these and the other arguments."""

    def expand(builder: NodeFactory, target: Expr | None, arguments: tuple[Expr, ...]) -> Expr:
        assert target is not None
        variables = _variables(arguments, count)
        made = parts(builder, arguments[:count], arguments[count:])
        return Comprehension(builder.number(), target, *variables, ACCUMULATOR, *made)

    return expand


def _all(builder: NodeFactory, _variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    condition = _call(builder, "@not_strictly_false", _result(builder))
    step = _call(builder, "_&&_", _result(builder), arguments[0])
    return _true(builder), condition, step, _result(builder)


def _exists(builder: NodeFactory, _variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    condition = _call(builder, "@not_strictly_false", _call(builder, "!_", _result(builder)))
    step = _call(builder, "_||_", _result(builder), arguments[0])
    return Literal(builder.number(), False), condition, step, _result(builder)


def _exists_one(builder: NodeFactory, _variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    more = _call(builder, "_+_", _result(builder), Literal(builder.number(), 1))
    step = _call(builder, "_?_:_", arguments[0], more, _result(builder))
    result = _call(builder, "_==_", _result(builder), Literal(builder.number(), 1))
    return Literal(builder.number(), 0), _true(builder), step, result


def _collect(builder: NodeFactory, element: Expr, predicate: tuple[Expr, ...]) -> _Parts:
    """Adds the element to a list where the predicate holds, if there is one."""
    step = _call(builder, "_+_", _result(builder), ListLiteral(builder.number(), (element,)))
    return ListLiteral(builder.number(), ()), _true(builder), _where(builder, predicate, step), _result(builder)


def _where(builder: NodeFactory, predicate: tuple[Expr, ...], step: Expr) -> Expr:
    return _call(builder, "_?_:_", predicate[0], step, _result(builder)) if predicate else step


def _list(builder: NodeFactory, _variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    """`map(x, f)`, `map(x, p, f)` and, with two variables, `transformList`."""
    return _collect(builder, arguments[-1], arguments[:-1])


def _filter(builder: NodeFactory, variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    return _collect(builder, variables[0], arguments)


def _entry(builder: NodeFactory, variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    """`transformMap`: keeps the key."""
    return _insert(builder, (Identifier(builder.number(), _variable(variables[0])), arguments[-1]), arguments[:-1])


def _entries(builder: NodeFactory, _variables: tuple[Expr, ...], arguments: tuple[Expr, ...]) -> _Parts:
    """`transformMapEntry`: the last argument is a map to merge."""
    return _insert(builder, (arguments[-1],), arguments[:-1])


def _insert(builder: NodeFactory, added: tuple[Expr, ...], predicate: tuple[Expr, ...]) -> _Parts:
    step = _call(builder, "cel.@mapInsert", _result(builder), *added)
    return MapLiteral(builder.number(), ()), _true(builder), _where(builder, predicate, step), _result(builder)


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
    keys = _fold(1, _list)(builder, Identifier(builder.number(), _SORT_INPUT), arguments)
    assert keys is not None
    ordered = Call(builder.number(), "@sortByAssociatedKeys", Identifier(builder.number(), _SORT_INPUT), (keys,))
    return _bound(builder, _SORT_INPUT, target, ordered)


MACROS: Mapping[Key, Expander] = {
    ("has", 1, False): _has,
    ("all", 2, True): _fold(1, _all),
    ("all", 3, True): _fold(2, _all),
    ("exists", 2, True): _fold(1, _exists),
    ("exists", 3, True): _fold(2, _exists),
    ("exists_one", 2, True): _fold(1, _exists_one),
    ("exists_one", 3, True): _fold(2, _exists_one),
    ("existsOne", 3, True): _fold(2, _exists_one),
    ("map", 2, True): _fold(1, _list),
    ("map", 3, True): _fold(1, _list),
    ("filter", 2, True): _fold(1, _filter),
    ("transformList", 3, True): _fold(2, _list),
    ("transformList", 4, True): _fold(2, _list),
    ("transformMap", 3, True): _fold(2, _entry),
    ("transformMap", 4, True): _fold(2, _entry),
    ("transformMapEntry", 3, True): _fold(2, _entries),
    ("transformMapEntry", 4, True): _fold(2, _entries),
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _optional("optMap", flat=False),
    ("optFlatMap", 2, True): _optional("optFlatMap", flat=True),
    ("sortBy", 2, True): _sort_by,
}
"""Every macro of the device environment. Stored and new expressions have the same ones since Kubernetes 1.34."""


_Map = dict[object, Value]


def _put(target: _Map, key: Value, value: Value) -> Value:
    if find(target, key)[0]:
        raise CelFault("insert failed: the key already exists")
    if type(target) is not GrowingMap:
        target = dict(target)
    target[map_key(key)] = value
    return target


def _put_all(target: _Map, entries: _Map) -> Value:
    for stored, value in entries.items():
        inserted = _put(target, unmap_key(stored), value)
        assert isinstance(inserted, dict)
        target = inserted
    return target


_K = parameter("K")
_V = parameter("V")
_MAP = map_of(_K, _V)

TWO_VARIABLES: Library = (
    function("cel.@mapInsert", "@mapInsert_map_key_value", _MAP, _K, _V, result=_MAP, call=_put),
    function("cel.@mapInsert", "@mapInsert_map_map", _MAP, _MAP, result=_MAP, call=_put_all),
)
"""What the macros with two variables insert with into the map that they collect; no source can write its name."""
