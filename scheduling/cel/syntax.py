"""The syntax tree of a CEL expression, after macros are expanded.

The shape follows the CEL specification (`cel.expr.Expr`), because two things that must equal Kubernetes are counted
on it: the estimate of the worst cost and the cost of an evaluation. Operators are calls with the specification's names
(`_&&_`, `_[_]`, `_?_:_`, `@in`, `!_`, `-_`, `_?._`, `_[?_]`). Every node has a number that is unique in its tree;
places in the source are kept beside the tree, by number.

Invariant: a tree never holds a macro, only its expansion.

A tree may be some thousand nodes deep (every parenthesis may hold a macro, and a macro becomes several nodes), more
than Python's stack is sure to have left. The walks here do not recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Uint:
    """A literal like `1u`, whose type is not that of `1`."""

    value: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: None, bool, int, `Uint`, float, str or bytes."""

    id: int
    value: bool | int | Uint | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name: a variable, a type, or the start of a qualified name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; with `test_only` it is `has(operand.field)`."""

    id: int
    operand: Expr
    field: str
    test_only: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments)` or, with a target, `target.function(arguments)`; operators have no target."""

    id: int
    function: str
    target: Expr | None
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, ?b]`; `optional` holds the positions written with a question mark."""

    id: int
    elements: tuple[Expr, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One entry of a map; `optional` when written `?key: value`."""

    id: int
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{key: value}`."""

    id: int
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message literal."""

    id: int
    name: str
    value: Expr
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MessageLiteral:
    """`Name{field: value}`."""

    id: int
    type_name: str
    fields: tuple[MessageField, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A fold over `range` with one or two loop variables; macros expand to it.

    `variable2` is empty for the macros with one variable. `cel.bind` is a fold over an empty list.
    """

    id: int
    range: Expr
    variable: str
    variable2: str
    accumulator: str
    initial: Expr
    condition: Expr
    step: Expr
    result: Expr


Expr = Literal | Identifier | Select | Call | ListLiteral | MapLiteral | MessageLiteral | Comprehension


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in the source: line from 1, column from 0 (in characters), as CEL counts them."""

    line: int
    column: int


def place_at(source: str, offset: int) -> SourcePlace:
    """The place of a character of the source."""
    before = source[:offset]
    return SourcePlace(line=before.count("\n") + 1, column=len(before) - (before.rfind("\n") + 1))


@dataclass(frozen=True, slots=True)
class Ast:
    """A parsed expression.

    `offsets` maps the number of a node to its offset in `source`, in characters; for operators that of the operator,
    for calls that of the opening parenthesis, for selections that of the dot, as CEL does. `spans` maps it to the start
    and end of the text that the node was read from (expanded nodes: of the macro's whole call).
    """

    source: str
    root: Expr
    offsets: Mapping[int, int]
    spans: Mapping[int, tuple[int, int]]

    def place(self, number: int) -> SourcePlace | None:
        """The place of the node of that number; None for 0, which no node has."""
        return place_at(self.source, self.offsets.get(number, 0)) if number else None


def children(node: Expr) -> tuple[Expr, ...]:
    """The nodes directly below, left to right (comprehension: range, initial, condition, step, result)."""
    if isinstance(node, (Literal, Identifier)):
        return ()
    if isinstance(node, Select):
        return (node.operand,)
    if isinstance(node, Call):
        return node.arguments if node.target is None else (node.target, *node.arguments)
    if isinstance(node, ListLiteral):
        return node.elements
    if isinstance(node, MapLiteral):
        return tuple(each for entry in node.entries for each in (entry.key, entry.value))
    if isinstance(node, MessageLiteral):
        return tuple(field.value for field in node.fields)
    return (node.range, node.initial, node.condition, node.step, node.result)


def postorder(root: Expr) -> list[Expr]:
    """Every node of a tree, each after the nodes below it, left to right."""
    found: list[Expr] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(children(node))
    found.reverse()
    return found


def depth_of(root: Expr) -> int:
    """The number of levels of a tree."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((each, depth + 1) for each in children(node))
    return deepest


def qualified_name(node: Expr) -> str | None:
    """`a.b.c` as a name, or None for anything else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))


def is_bind(node: Expr) -> bool:
    """Whether this is an expanded `cel.bind`: a fold over an empty list that names its initial value."""
    return (
        isinstance(node, Comprehension)
        and isinstance(node.range, ListLiteral)
        and not node.range.elements
        and isinstance(node.condition, Literal)
        and node.condition.value is False
    )


def copy(root: Expr, renumber: Callable[[int], int]) -> Expr:
    """The same tree with other numbers: `renumber` gives the new number of a node (or entry) from the old one."""
    done: list[Expr] = []
    for node in postorder(root):
        count = len(children(node))
        parts = tuple(done[len(done) - count :])
        del done[len(done) - count :]
        done.append(_rebuilt(node, parts, renumber))
    return done[0]


def _rebuilt(node: Expr, parts: tuple[Expr, ...], renumber: Callable[[int], int]) -> Expr:
    number = renumber(node.id)
    if isinstance(node, (Literal, Identifier)):
        return replace(node, id=number)
    if isinstance(node, Select):
        return replace(node, id=number, operand=parts[0])
    if isinstance(node, Call):
        if node.target is None:
            return Call(number, node.function, None, parts)
        return Call(number, node.function, parts[0], parts[1:])
    if isinstance(node, ListLiteral):
        return ListLiteral(number, parts, node.optional)
    if isinstance(node, MapLiteral):
        entries = tuple(
            replace(entry, id=renumber(entry.id), key=parts[2 * place], value=parts[2 * place + 1])
            for place, entry in enumerate(node.entries)
        )
        return MapLiteral(number, entries)
    if isinstance(node, MessageLiteral):
        fields = tuple(
            replace(field, id=renumber(field.id), value=value) for field, value in zip(node.fields, parts, strict=True)
        )
        return MessageLiteral(number, node.type_name, fields)
    scope = (node.variable, node.variable2, node.accumulator)
    return Comprehension(number, parts[0], *scope, parts[1], parts[2], parts[3], parts[4])
