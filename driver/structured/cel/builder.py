"""Makes the nodes of a tree: numbers, places, balanced chains and expanded macros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driver.structured.cel import tree
from driver.structured.cel.errors import Fault, SyntaxFault
from driver.structured.cel.lexer import Token
from driver.structured.cel.macros import Expander, Key, MacroMisused
from driver.structured.cel.pieces import Operand
from driver.structured.cel.syntax import Ast, Call, Expr

MAX_NODES = 250_000
"""A limit of our own: a macro may repeat its target, so a short text can mean a tree of astronomic size."""


class Builder:
    """The nodes of one source."""

    def __init__(self, macros: Mapping[Key, Expander]) -> None:
        self._macros = macros
        self._offsets: dict[int, int] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self._written: dict[int, Expr] = {}
        self._made = 0
        self._place = (0, 0, 0)  # of the macro that is being expanded: offset, start, end

    def new(self, offset: int, start: int, end: int) -> int:
        """The number of a new node that stands at `offset` and was read from `start` to `end`."""
        self._made += 1
        if self._made > MAX_NODES:
            raise SyntaxFault((Fault(offset, "the expression becomes too large when its macros are expanded"),))
        self._offsets[self._made] = offset
        self._spans[self._made] = (start, end)
        return self._made

    def number(self) -> int:
        """For macros: a new node at the place of the macro's call."""
        return self.new(*self._place)

    def duplicate(self, node: Expr) -> Expr:
        """For macros: the same expression with numbers of its own, at its own place."""
        return tree.copy(node, lambda old: self.new(self._offsets[old], *self._spans[old]))

    def balanced(self, function: str, terms: Sequence[Operand], operators: Sequence[Token]) -> Operand:
        """A chain of `&&` or `||` as a tree of the least depth."""
        if not operators:
            return terms[0]

        def build(low: int, high: int) -> Expr:
            middle = (low + high + 1) // 2
            left = terms[middle].node if middle == low else build(low, middle - 1)
            right = terms[middle + 1].node if middle == high else build(middle + 1, high)
            number = self.new(operators[middle].offset, terms[low].start, terms[high + 1].end)
            return Call(number, function, None, (left, right))

        height = max(each.height for each in terms)
        return Operand(build(0, len(operators) - 1), height, terms[0].start, terms[-1].end)

    def expanded(self, call: Call) -> Expr:
        """What a call means: itself, or if it is a macro its expansion. Raises `SyntaxFault` for a macro misused."""
        expander = self._macros.get((call.function, len(call.arguments), call.target is not None))
        if expander is None:
            return call
        self._place = (self._offsets[call.id], *self._spans[call.id])
        try:
            expansion = expander(self, call.target, call.arguments)
        except MacroMisused as misuse:
            fault = Fault(self._offsets[misuse.node.id], f"{call.function}: {misuse.message}")
            raise SyntaxFault((fault,)) from misuse
        if expansion is None:
            return call
        self._written[expansion.id] = call
        return expansion

    def tree(self, source: str, root: Expr) -> Ast:
        """The finished tree."""
        return Ast(source, root, self._offsets, self._spans, self._written)
