"""The parser's open constructs, and the nodes made of them: numbers, places, balanced chains, expanded macros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduling.cel.errors import Issue, SyntaxFault
from scheduling.cel.lexer import Token
from scheduling.cel.macros import Expander, Key, MacroMisused
from scheduling.cel.syntax import Ast, Call, Expr, ListLiteral, MapEntry, MapLiteral, MessageField, MessageLiteral, copy

MAX_NODES = 250_000
"""A limit of our own: a macro may repeat its target, so a short text can mean a tree of astronomic size."""


RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    )
)
"""Words that cannot be names; fields may have them."""

RELATION, SUM, PRODUCT = 1, 2, 3
_FUNCTIONS = (
    (RELATION, {"==": "_==_", "!=": "_!=_", "<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "in": "@in"}),
    (SUM, {"+": "_+_", "-": "_-_"}),
    (PRODUCT, {"*": "_*_", "/": "_/_", "%": "_%_"}),
)
BINARY = {sign: (precedence, name) for precedence, names in _FUNCTIONS for sign, name in names.items()}
"""The precedence and the function of each binary operator but `&&` and `||`."""


@dataclass(slots=True)
class ParsedOperand:
    """An operand that is complete. `height`: operators on the longest path below; `start`, `end`: with parentheses."""

    node: Expr
    height: int
    start: int
    end: int


@dataclass(slots=True)
class Construct:
    """An open construct that waits for expressions: the whole, a bracket, a call, a literal, or the rest of `? :`."""

    kind: str  # whole ( index call list map message else
    token: Token
    start: int
    target: ParsedOperand | None = None
    name: str = ""
    optional: bool = False
    items: list[ParsedOperand] = field(default_factory=list)
    optionals: set[int] = field(default_factory=set)
    keys: list[tuple[int, ParsedOperand | str, bool]] = field(default_factory=list)  # number, key or field, optional


@dataclass(slots=True)
class Level:
    """An expression that the parser is reading, up to the end of its part of the construct.

    `relations`, `sums`: how many comparisons and arithmetic expressions are open around it.
    """

    construct: Construct
    depth: int
    relations: int
    sums: int
    prefix: tuple[str, Token, int] | None = None
    operands: list[ParsedOperand] = field(default_factory=list)
    operators: list[tuple[int, str, Token]] = field(default_factory=list)
    conjuncts: list[ParsedOperand] = field(default_factory=list)
    ands: list[Token] = field(default_factory=list)
    disjuncts: list[ParsedOperand] = field(default_factory=list)
    ors: list[Token] = field(default_factory=list)
    condition: ParsedOperand | None = None
    question: Token | None = None

    def open(self) -> tuple[int, int]:
        """Counts the open comparisons and arithmetic expressions, including those around it."""
        comparisons = sum(1 for precedence, _, _ in self.operators if precedence == RELATION)
        return self.relations + comparisons, self.sums + len(self.operators) - comparisons


class Builder:
    """The nodes of one source."""

    def __init__(self, macros: Mapping[Key, Expander]) -> None:
        self._macros = macros
        self._offsets: dict[int, int] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self._made = 0
        self._place = (0, 0, 0)  # of the macro that is being expanded: offset, start, end

    def new(self, offset: int, start: int, end: int) -> int:
        """Number a new node at `offset` that was read from `start` to `end`."""
        self._made += 1
        if self._made > MAX_NODES:
            raise SyntaxFault((Issue(offset, "the expression becomes too large when its macros are expanded"),))
        self._offsets[self._made] = offset
        self._spans[self._made] = (start, end)
        return self._made

    def number(self) -> int:
        """Numbers a new node at the place of the macro's call."""
        return self.new(*self._place)

    def duplicate(self, node: Expr) -> Expr:
        """Copies an expression of the macro's call, with new numbers at the old places."""
        return copy(node, lambda old: self.new(self._offsets[old], *self._spans[old]))

    def balanced(self, function: str, terms: Sequence[ParsedOperand], operators: Sequence[Token]) -> ParsedOperand:
        """Builds a chain of `&&` or `||` as a tree of the least depth."""
        if not operators:
            return terms[0]

        def build(low: int, high: int) -> Expr:
            middle = (low + high + 1) // 2
            left = terms[middle].node if middle == low else build(low, middle - 1)
            right = terms[middle + 1].node if middle == high else build(middle + 1, high)
            number = self.new(operators[middle].offset, terms[low].start, terms[high + 1].end)
            return Call(number, function, None, (left, right))

        height = max(each.height for each in terms)
        return ParsedOperand(build(0, len(operators) - 1), height, terms[0].start, terms[-1].end)

    def finished(self, construct: Construct, closer: Token) -> ParsedOperand:
        """Makes the node of a bracket or call that has been closed."""
        number = self.new(construct.token.offset, construct.start, closer.end)
        nodes = tuple(each.node for each in construct.items)
        height = max((each.height for each in construct.items), default=0)
        node: Expr
        if construct.kind == "list":
            node = ListLiteral(number, nodes, frozenset(construct.optionals))
        elif construct.kind == "message":
            keys = zip(construct.keys, nodes, strict=True)
            fields = tuple(MessageField(at, str(name), value, optional) for (at, name, optional), value in keys)
            node = MessageLiteral(number, construct.name, fields)
        elif construct.kind == "map":
            entries: list[MapEntry] = []
            for (at, key, optional), value in zip(construct.keys, nodes, strict=True):
                assert isinstance(key, ParsedOperand)
                height = max(height, key.height)
                entries.append(MapEntry(at, key.node, value, optional))
            node = MapLiteral(number, tuple(entries))
        else:
            target = construct.target
            if target is not None:
                height = max(height, target.height) + 1
            node = self.expanded(Call(number, construct.name, None if target is None else target.node, nodes))
        return ParsedOperand(node, height, construct.start, closer.end)

    def expanded(self, call: Call) -> Expr:
        """The call itself, or the expansion of a macro. Raises `SyntaxFault` for a misused macro."""
        expander = self._macros.get((call.function, len(call.arguments), call.target is not None))
        if expander is None:
            return call
        self._place = (self._offsets[call.id], *self._spans[call.id])
        try:
            expansion = expander(self, call.target, call.arguments)
        except MacroMisused as misuse:
            fault = Issue(self._offsets[misuse.node.id], f"{call.function}: {misuse.message}")
            raise SyntaxFault((fault,)) from misuse
        return call if expansion is None else expansion

    def tree(self, source: str, root: Expr) -> Ast:
        """The finished tree."""
        return Ast(source, root, self._offsets, self._spans)
