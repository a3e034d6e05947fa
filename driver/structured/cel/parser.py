"""From tokens to a tree, macros expanded.

The grammar is that of the specification. It is read without recursion: what is open (a bracket, a call, the second half
of `a ? b : c`) lies on a list, so that a hostile expression costs memory in proportion to its length and never a stack.
Kubernetes' parser does recurse and bounds that; the same expressions are refused here, by the same counts:
`MAX_DEPTH` of nested expressions, of nested comparisons and of nested arithmetic while reading, and of operators,
selections, indices and method calls on one path of what was read. Chains of `&&` and `||` are not nested: they become
balanced trees, as there.

`MAX_NODES` is ours: a macro repeats its target, so a short text can mean a tree of astronomic size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from driver.structured.cel import literals, tree
from driver.structured.cel.errors import Fault, SyntaxFault
from driver.structured.cel.lexer import END, Token, tokenize
from driver.structured.cel.macros import MACROS, Expander, Key, MacroMisused
from driver.structured.cel.syntax import (
    Ast,
    Call,
    Entry,
    Expr,
    Field,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
    Uint,
)

MAX_DEPTH = 250
MAX_LENGTH = 100_000
"""Code points of a source. The API server accepts far less in a selector (see `compiler.MAX_SELECTOR_LENGTH`)."""
MAX_NODES = 250_000

_RESERVED = frozenset(
    "as break const continue else false for function if import in let loop package namespace null return true var "
    "void while".split()
)

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
_RELATION, _SUM, _PRODUCT = 1, 2, 3
_BINARY: dict[str, tuple[int, str]] = {
    **{text: (_RELATION, name) for text, name in _RELATIONS.items()},
    **{text: (_SUM, name) for text, name in _SUMS.items()},
    **{text: (_PRODUCT, name) for text, name in _PRODUCTS.items()},
}


@dataclass(slots=True)
class _Operand:
    """A piece that was read. `height`: operators on the longest path below; `start`, `end`: with its parentheses."""

    node: Expr
    height: int
    start: int
    end: int


@dataclass(slots=True)
class _Construct:
    """Something open that waits for expressions: the whole, a bracket, a call, a literal, or the rest of `? :`."""

    kind: str  # whole ( index call list map message else
    token: Token
    start: int
    target: _Operand | None = None
    name: str = ""
    optional: bool = False
    items: list[_Operand] = field(default_factory=list)
    optionals: set[int] = field(default_factory=set)
    keys: list[tuple[int, _Operand | str, bool]] = field(default_factory=list)  # number, key or field, optional


@dataclass(slots=True)
class _Level:
    """An expression that is being read, up to the end of its construct's part.

    `relations`, `sums`: how many comparisons and arithmetic expressions are open around it.
    """

    construct: _Construct
    depth: int
    relations: int
    sums: int
    prefix: tuple[str, Token, int] | None = None
    operands: list[_Operand] = field(default_factory=list)
    operators: list[tuple[int, str, Token]] = field(default_factory=list)
    conjuncts: list[_Operand] = field(default_factory=list)
    ands: list[Token] = field(default_factory=list)
    disjuncts: list[_Operand] = field(default_factory=list)
    ors: list[Token] = field(default_factory=list)
    condition: _Operand | None = None
    question: Token | None = None


def parse(source: str, macros: Mapping[Key, Expander] = MACROS) -> Ast:
    """The tree of a source.

    Raises `SyntaxFault` for what is no expression, and for one that is longer than `MAX_LENGTH` or deeper than
    `MAX_DEPTH`.
    """
    if len(source) > MAX_LENGTH:
        raise SyntaxFault((Fault(0, f"the expression has {len(source)} characters, {MAX_LENGTH} are allowed"),))
    return _Parser(source, macros).parse()


class _Parser:
    def __init__(self, source: str, macros: Mapping[Key, Expander]) -> None:
        self.source = source
        self.macros = macros
        self.tokens = tokenize(source)
        self.position = 0
        self.levels: list[_Level] = []
        self.offsets: dict[int, int] = {}
        self.spans: dict[int, tuple[int, int]] = {}
        self.written: dict[int, Expr] = {}
        self.nodes = 0
        self.place = (0, 0, 0)  # of the macro that is being expanded: offset, start, end
        self.finished: _Operand | None = None

    def parse(self) -> Ast:
        self._open(_Construct("whole", self.tokens[0], 0))
        while self.finished is None:
            operand = self._operand()
            while operand is not None:
                operand = self._suffix(operand)
        if self.finished.height > MAX_DEPTH:
            raise self._deep(0)
        return Ast(self.source, self.finished.node, self.offsets, self.spans, self.written)

    # --- numbers and faults

    def _new(self, offset: int, start: int, end: int) -> int:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._fault(offset, "the expression becomes too large when its macros are expanded")
        self.offsets[self.nodes] = offset
        self.spans[self.nodes] = (start, end)
        return self.nodes

    def number(self) -> int:
        """For macros: a new node at the place of the macro's call."""
        return self._new(*self.place)

    def duplicate(self, node: Expr) -> Expr:
        """For macros: the same expression with numbers of its own, at its own place."""
        return tree.copy(node, lambda old: self._new(self.offsets[old], *self.spans[old]))

    def _fault(self, offset: int, message: str) -> SyntaxFault:
        return SyntaxFault((Fault(offset, message),))

    def _deep(self, offset: int) -> SyntaxFault:
        return self._fault(offset, f"the expression is nested more than {MAX_DEPTH} levels deep")

    def _unexpected(self, token: Token, wanted: str) -> SyntaxFault:
        if token.kind == END:
            return self._fault(token.offset, f"the expression ends here, but {wanted} is missing")
        text = token.text if len(token.text) <= 30 else token.text[:30] + "…"
        return self._fault(token.offset, f"unexpected {text!r} where {wanted} should be")

    def _next(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def _accept(self, kind: str) -> bool:
        if self.tokens[self.position].kind != kind:
            return False
        self.position += 1
        return True

    # --- levels

    def _open(self, construct: _Construct) -> None:
        """Starts an expression inside of a construct."""
        if not self.levels:
            level = _Level(construct, 1, 1, 1)
        else:
            outer = self.levels[-1]
            if construct.kind == "else":
                level = _Level(construct, outer.depth + 1, outer.relations, outer.sums)
            else:
                pending = sum(1 for each in outer.operators if each[0] == _RELATION)
                arithmetic = len(outer.operators) - pending
                relations = outer.relations + 1 + pending
                level = _Level(construct, outer.depth + 1, relations, outer.sums + 1 + arithmetic)
        if max(level.depth, level.relations, level.sums) > MAX_DEPTH:
            raise self._deep(construct.token.offset)
        self.levels.append(level)

    # --- operands

    def _operand(self) -> _Operand | None:
        """Reads the start of an operand. None: it opened a construct, whose parts come first."""
        token = self._next()
        kind = token.kind
        if kind in ("!", "-"):
            count = 1
            while self._accept(kind):
                count += 1
            following = self.tokens[self.position]
            if kind == "-" and count == 1 and following.kind in ("int", "float"):
                return self._literal(self._next(), sign=token)
            if following.kind in ("!", "-") and not self._negative_number():
                raise self._fault(following.offset, f"'{kind}' and '{following.kind}' need parentheses between them")
            self.levels[-1].prefix = (kind, token, count)
            token = self._next()
            if token.kind == "-":
                return self._literal(self._next(), sign=token)
            kind = token.kind
        if kind in ("name", "."):
            return self._named(token)
        if kind in ("(", "[", "{"):
            return self._bracket(token)
        return self._literal(token)

    def _negative_number(self) -> bool:
        return self.tokens[self.position].kind == "-" and self.tokens[self.position + 1].kind in ("int", "float")

    def _literal(self, token: Token, sign: Token | None = None) -> _Operand:
        start = token.offset if sign is None else sign.offset
        value: bool | int | Uint | float | str | bytes | None
        try:
            match token.kind:
                case "string":
                    value = literals.string_value(token.text)
                case "int":
                    value = literals.int_value(token.text, negative=sign is not None)
                case "true" | "false":
                    value = token.kind == "true"
                case "float":
                    value = literals.float_value(token.text, negative=sign is not None)
                case "null":
                    value = None
                case "uint":
                    value = Uint(literals.uint_value(token.text))
                case "bytes":
                    value = literals.bytes_value(token.text)
                case _:
                    raise self._unexpected(token, "a value")
        except literals.BadLiteral as fault:
            raise self._fault(token.offset, str(fault)) from fault
        return _Operand(Literal(self._new(start, start, token.end), value), 0, start, token.end)

    def _named(self, token: Token) -> _Operand | None:
        """A name, a call of a function, or the name of a message and its `{`."""
        dot = token.kind == "."
        first = self._next() if dot else token
        if first.kind != "name":
            raise self._unexpected(first, "a name")
        message = self._message_name(first)
        if message is not None:
            return self._bracket(self._next(), name=("." if dot else "") + message, start=token.offset)
        if first.text in _RESERVED:
            raise self._fault(first.offset, f"'{first.text}' is a reserved word and cannot be used as a name")
        name = ("." if dot else "") + first.text
        if self.tokens[self.position].kind == "(":
            return self._call(_Construct("call", self._next(), token.offset, name=name))
        number = self._new(first.offset, token.offset, first.end)
        return _Operand(Identifier(number, name), 0, token.offset, first.end)

    def _message_name(self, first: Token) -> str | None:
        """Looks ahead: a qualified name that a `{` follows starts a message. Reads up to the `{` if so."""
        at = self.position
        name = first.text
        while self.tokens[at].kind == "." and self.tokens[at + 1].kind == "name":
            name += "." + self.tokens[at + 1].text
            at += 2
        if self.tokens[at].kind != "{":
            return None
        self.position = at
        return name

    def _call(self, construct: _Construct) -> _Operand | None:
        if self._accept(")"):
            return self._finish(construct, self.tokens[self.position - 1])
        self._open(construct)
        return None

    def _bracket(self, token: Token, name: str = "", start: int | None = None) -> _Operand | None:
        kind = {"(": "(", "[": "list", "{": "message" if name else "map"}[token.kind]
        construct = _Construct(kind, token, token.offset if start is None else start, name=name)
        if kind != "(":
            closer = "]" if kind == "list" else "}"
            at = self.position + (self.tokens[self.position].kind == ",")
            if self.tokens[at].kind == closer:
                self.position = at + 1
                return self._finish(construct, self.tokens[at])
        return self._element(construct)

    def _element(self, construct: _Construct) -> None:
        """Starts the next element of a bracket: its question mark, and for a message its field's name and colon."""
        question = construct.kind in ("list", "map", "message") and self._accept("?")
        if construct.kind == "list" and question:
            construct.optionals.add(len(construct.items))
        if construct.kind == "message":
            name = self._next()
            if name.kind not in ("name", "quoted"):
                raise self._unexpected(name, "the name of a field")
            colon = self._next()
            if colon.kind != ":":
                raise self._unexpected(colon, "':'")
            number = self._new(colon.offset, name.offset, name.end)
            construct.keys.append((number, name.text.strip("`"), question))
        elif construct.kind == "map":
            construct.optional = question
        self._open(construct)

    # --- behind an operand

    def _suffix(self, operand: _Operand) -> _Operand | None:
        """What follows an operand: a selection, an index, a call; or else the operand is complete.

        None: an operand is to be read next, or all is finished.
        """
        token = self._next()
        if token.kind == ".":
            return self._select(operand, token)
        if token.kind == "[":
            construct = _Construct("index", token, operand.start, target=operand)
            construct.optional = self._accept("?")
            self._open(construct)
            return None
        level = self.levels[-1]
        if level.prefix is not None:
            operand = self._prefixed(level.prefix, operand)
            level.prefix = None
        binary = _BINARY.get(token.kind)
        if binary is not None:
            self._reduce(level, binary[0], operand)
            level.operators.append((*binary, token))
            pending = sum(1 for each in level.operators if each[0] == _RELATION)
            if max(level.relations + pending, level.sums + len(level.operators) - pending) > MAX_DEPTH:
                raise self._deep(token.offset)
            return None
        return self._logical(level, operand, token)

    def _select(self, operand: _Operand, dot: Token) -> _Operand | None:
        optional = self._accept("?")
        name = self._next()
        if name.kind not in ("name", "quoted"):
            raise self._unexpected(name, "the name of a field or function")
        if name.kind == "name" and not optional and self.tokens[self.position].kind == "(":
            return self._call(_Construct("call", self._next(), operand.start, target=operand, name=name.text))
        text = name.text if name.kind == "name" else name.text[1:-1]
        span = (operand.start, name.end)
        number = self._new(dot.offset, *span)
        if not optional:
            return _Operand(Select(number, operand.node, text), operand.height + 1, *span)
        field_name = Literal(self._new(name.offset, name.offset, name.end), text)
        return _Operand(Call(number, "_?._", None, (operand.node, field_name)), operand.height + 1, *span)

    def _prefixed(self, prefix: tuple[str, Token, int], operand: _Operand) -> _Operand:
        sign, token, count = prefix
        if count % 2 == 0:
            return _Operand(operand.node, operand.height, token.offset, operand.end)
        number = self._new(token.offset, token.offset, operand.end)
        node = Call(number, "!_" if sign == "!" else "-_", None, (operand.node,))
        return _Operand(node, operand.height, token.offset, operand.end)

    def _logical(self, level: _Level, operand: _Operand, token: Token) -> _Operand | None:
        """The operators below comparisons, and the end of the expression."""
        self._reduce(level, 0, operand)
        value = level.operands.pop()
        if token.kind == "&&":
            level.conjuncts.append(value)
            level.ands.append(token)
            return None
        value = self._balanced("_&&_", [*level.conjuncts, value], level.ands)
        level.conjuncts, level.ands = [], []
        if token.kind == "||":
            level.disjuncts.append(value)
            level.ors.append(token)
            return None
        value = self._balanced("_||_", [*level.disjuncts, value], level.ors)
        level.disjuncts, level.ors = [], []
        if token.kind == "?" and level.question is None:
            level.condition, level.question = value, token
            return None
        if level.condition is not None and level.question is not None:
            if token.kind != ":":
                raise self._unexpected(token, "':' of the condition's other value")
            other = _Construct("else", level.question, level.condition.start, target=level.condition, items=[value])
            self.levels[-1] = level
            self._open(other)
            return None
        return self._close(value, token)

    def _reduce(self, level: _Level, precedence: int, operand: _Operand) -> None:
        """Applies the waiting operators that bind at least as strongly, and leaves the operand."""
        while level.operators and level.operators[-1][0] >= precedence:
            _, name, token = level.operators.pop()
            left = level.operands.pop()
            number = self._new(token.offset, left.start, operand.end)
            node = Call(number, name, None, (left.node, operand.node))
            operand = _Operand(node, max(left.height, operand.height) + 1, left.start, operand.end)
        level.operands.append(operand)

    def _balanced(self, function: str, terms: list[_Operand], operators: list[Token]) -> _Operand:
        if not operators:
            return terms[0]

        def build(low: int, high: int) -> Expr:
            middle = (low + high + 1) // 2
            left = terms[middle].node if middle == low else build(low, middle - 1)
            right = terms[middle + 1].node if middle == high else build(middle + 1, high)
            number = self._new(operators[middle].offset, terms[low].start, terms[high + 1].end)
            return Call(number, function, None, (left, right))

        height = max(each.height for each in terms)
        return _Operand(build(0, len(operators) - 1), height, terms[0].start, terms[-1].end)

    # --- the end of an expression

    def _close(self, value: _Operand, token: Token) -> _Operand | None:
        """An expression is complete and `token` follows: hands it to its construct."""
        construct = self.levels.pop().construct
        while construct.kind == "else":
            condition, then = construct.target, construct.items[0]
            assert condition is not None
            number = self._new(construct.token.offset, condition.start, value.end)
            node = Call(number, "_?_:_", None, (condition.node, then.node, value.node))
            height = max(condition.height, then.height, value.height) + 1
            value = _Operand(node, height, condition.start, value.end)
            construct = self.levels.pop().construct
        return _CLOSERS[construct.kind](self, construct, value, token)

    def _close_whole(self, construct: _Construct, value: _Operand, token: Token) -> None:
        if token.kind != END:
            raise self._unexpected(token, "an operator or the end of the expression")
        self.finished = value

    def _close_parenthesis(self, construct: _Construct, value: _Operand, token: Token) -> _Operand:
        if token.kind != ")":
            raise self._unclosed(construct, token, "')'")
        return _Operand(value.node, value.height, construct.token.offset, token.end)

    def _close_index(self, construct: _Construct, value: _Operand, token: Token) -> _Operand:
        if token.kind != "]":
            raise self._unclosed(construct, token, "']'")
        assert construct.target is not None
        number = self._new(construct.token.offset, construct.start, token.end)
        function = "_[?_]" if construct.optional else "_[_]"
        node = Call(number, function, None, (construct.target.node, value.node))
        return _Operand(node, max(construct.target.height, value.height) + 1, construct.start, token.end)

    def _close_item(self, construct: _Construct, value: _Operand, token: Token) -> _Operand | None:
        """An argument of a call, or an element of a list or value of a message."""
        closer = {"call": ")", "list": "]", "message": "}", "map": "}"}[construct.kind]
        construct.items.append(value)
        if token.kind == ",":
            if construct.kind != "call" and self._accept(closer):
                return self._finish(construct, self.tokens[self.position - 1])
            self._element(construct)
            return None
        if token.kind != closer:
            raise self._unclosed(construct, token, f"',' or '{closer}'")
        return self._finish(construct, token)

    def _close_map_part(self, construct: _Construct, value: _Operand, token: Token) -> _Operand | None:
        if len(construct.keys) > len(construct.items):
            return self._close_item(construct, value, token)
        if token.kind != ":":
            raise self._unclosed(construct, token, "':' and the value of the entry")
        number = self._new(token.offset, value.start, value.end)
        construct.keys.append((number, value, construct.optional))
        self._open(construct)
        return None

    def _unclosed(self, construct: _Construct, token: Token, wanted: str) -> SyntaxFault:
        if token.kind != END:
            return self._unexpected(token, wanted)
        before = self.source[: construct.token.offset]
        line, column = before.count("\n") + 1, construct.token.offset - before.rfind("\n")
        where = f"{line}:{column}"
        return self._fault(
            token.offset,
            f"the expression ends here, but {wanted} of the '{construct.token.text}' at {where} is missing",
        )

    def _finish(self, construct: _Construct, closer: Token) -> _Operand:
        """Makes the node of a bracket or call that is complete."""
        number = self._new(construct.token.offset, construct.start, closer.end)
        nodes = tuple(each.node for each in construct.items)
        height = max((each.height for each in construct.items), default=0)
        node: Expr
        if construct.kind == "list":
            node = ListLiteral(number, nodes, frozenset(construct.optionals))
        elif construct.kind == "message":
            keys = zip(construct.keys, nodes, strict=True)
            fields = tuple(Field(at, str(name), value, optional) for (at, name, optional), value in keys)
            node = MessageLiteral(number, construct.name, fields)
        elif construct.kind == "map":
            entries: list[Entry] = []
            for (at, key, optional), value in zip(construct.keys, nodes, strict=True):
                assert isinstance(key, _Operand)
                height = max(height, key.height)
                entries.append(Entry(at, key.node, value, optional))
            node = MapLiteral(number, tuple(entries))
        else:
            target = construct.target
            if target is not None:
                height = max(height, target.height) + 1
            node = self._expand(Call(number, construct.name, None if target is None else target.node, nodes))
        return _Operand(node, height, construct.start, closer.end)

    def _expand(self, call: Call) -> Expr:
        expander = self.macros.get((call.function, len(call.arguments), call.target is not None))
        if expander is None:
            return call
        self.place = (self.offsets[call.id], *self.spans[call.id])
        try:
            expanded = expander(self, call.target, call.arguments)
        except MacroMisused as fault:
            raise self._fault(self.offsets[fault.node.id], f"{call.function}: {fault.message}") from fault
        if expanded is None:
            return call
        self.written[expanded.id] = call
        return expanded


_CLOSERS: dict[str, Callable[[_Parser, _Construct, _Operand, Token], _Operand | None]] = {
    "whole": _Parser._close_whole,
    "(": _Parser._close_parenthesis,
    "index": _Parser._close_index,
    "call": _Parser._close_item,
    "list": _Parser._close_item,
    "message": _Parser._close_item,
    "map": _Parser._close_map_part,
}
