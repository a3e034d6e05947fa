"""The syntax tree of a CEL expression, after macros are expanded.

The shape follows the CEL specification (`cel.expr.Expr`), because two things that must equal Kubernetes are counted
on it: the estimate of the worst cost and the cost of an evaluation. Operators are calls with the specification's names
(`_&&_`, `_[_]`, `_?_:_`, `@in`, `!_`, `-_`, `_?._`, `_[?_]`). Every node has a number that is unique in its tree;
places in the source are kept beside the tree, by number.

Invariant: a tree never holds a macro, only what it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Uint:
    """A literal like `1u`: told apart from `1`, which is of another type."""

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
class Entry:
    """One entry of a map; `optional` when written `?key: value`."""

    id: int
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{key: value}`."""

    id: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Field:
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
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """What the macros become: a fold over `range` with one or two loop variables.

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
class Place:
    """Where something stands in the source: line from 1, column from 0 (in characters), as CEL counts them."""

    line: int
    column: int


def place_at(source: str, offset: int) -> Place:
    """The place of a character of the source."""
    before = source[:offset]
    return Place(line=before.count("\n") + 1, column=len(before) - (before.rfind("\n") + 1))


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

    def place(self, number: int) -> Place | None:
        """Where the node of that number stands; None for 0, which is the number of none."""
        return place_at(self.source, self.offsets.get(number, 0)) if number else None
