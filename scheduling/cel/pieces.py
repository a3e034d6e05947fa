"""What the parser holds while it reads: operands that are complete, and what is still open around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduling.cel.lexer import Token
from scheduling.cel.syntax import Expr

RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    )
)
"""Words that are no names, though fields may be called so."""

_RELATIONS = {
    "==": "_==_",
    "!=": "_!=_",
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "in": "@in",
}
_SUMS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
RELATION, SUM, PRODUCT = 1, 2, 3
BINARY: dict[str, tuple[int, str]] = {
    **{text: (RELATION, name) for text, name in _RELATIONS.items()},
    **{text: (SUM, name) for text, name in _SUMS.items()},
    **{text: (PRODUCT, name) for text, name in _PRODUCTS.items()},
}


@dataclass(slots=True)
class Operand:
    """A piece that was read. `height`: operators on the longest path below; `start`, `end`: with its parentheses."""

    node: Expr
    height: int
    start: int
    end: int


@dataclass(slots=True)
class Construct:
    """Something open that waits for expressions: the whole, a bracket, a call, a literal, or the rest of `? :`."""

    kind: str  # whole ( index call list map message else
    token: Token
    start: int
    target: Operand | None = None
    name: str = ""
    optional: bool = False
    items: list[Operand] = field(default_factory=list)
    optionals: set[int] = field(default_factory=set)
    keys: list[tuple[int, Operand | str, bool]] = field(default_factory=list)  # number, key or field, optional


@dataclass(slots=True)
class Level:
    """An expression that is being read, up to the end of its construct's part.

    `relations`, `sums`: how many comparisons and arithmetic expressions are open around it.
    """

    construct: Construct
    depth: int
    relations: int
    sums: int
    prefix: tuple[str, Token, int] | None = None
    operands: list[Operand] = field(default_factory=list)
    operators: list[tuple[int, str, Token]] = field(default_factory=list)
    conjuncts: list[Operand] = field(default_factory=list)
    ands: list[Token] = field(default_factory=list)
    disjuncts: list[Operand] = field(default_factory=list)
    ors: list[Token] = field(default_factory=list)
    condition: Operand | None = None
    question: Token | None = None

    def open(self) -> tuple[int, int]:
        """How many comparisons and arithmetic expressions are open here, those around it included."""
        comparisons = sum(1 for precedence, _, _ in self.operators if precedence == RELATION)
        return self.relations + comparisons, self.sums + len(self.operators) - comparisons
