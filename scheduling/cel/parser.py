"""From tokens to a tree, macros expanded.

The grammar is that of the specification. It is read without recursion: what is open (a bracket, a call, the second half
of `a ? b : c`) lies on a list, so that a hostile expression costs memory in proportion to its length and never a stack.
Kubernetes' parser does recurse and bounds that; the same expressions are refused here, by the same counts:
`MAX_DEPTH` of nested expressions, of nested comparisons and of nested arithmetic while reading, and of operators,
selections, indices and method calls on one path of what was read. Chains of `&&` and `||` are not nested: they become
balanced trees, as there.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.cel.builder import BINARY, RESERVED, Builder, Construct, Level, ParsedOperand
from scheduling.cel.errors import Issue, SyntaxFault, shortened
from scheduling.cel.lexer import END, BadLiteral, NoLiteral, Token, tokenize, value_of
from scheduling.cel.macros import MACROS, Expander, Key
from scheduling.cel.syntax import Ast, Call, Identifier, Literal, Select, place_at

MAX_DEPTH = 250
MAX_LENGTH = 100_000
"""Code points of a source. The API server accepts 10 KiB in a selector."""


def parse(source: str, macros: Mapping[Key, Expander] = MACROS) -> Ast:
    """The tree of a source.

    Raises `SyntaxFault` for a text that is not an expression, is longer than `MAX_LENGTH` or nests deeper than
    `MAX_DEPTH`.
    """
    if len(source) > MAX_LENGTH:
        raise SyntaxFault((Issue(0, f"the expression has {len(source)} characters; the limit is {MAX_LENGTH}"),))
    return _Parser(source, macros).parse()


class _Parser:
    def __init__(self, source: str, macros: Mapping[Key, Expander]) -> None:
        self.source = source
        self.builder = Builder(macros)
        self.tokens = tokenize(source)
        self.position = 0
        self.levels: list[Level] = []
        self.finished: ParsedOperand | None = None

    def parse(self) -> Ast:
        self._open(Construct("whole", self.tokens[0], 0))
        while self.finished is None:
            operand = self._operand()
            while operand is not None:
                operand = self._suffix(operand)
        if self.finished.height > MAX_DEPTH:
            raise self._deep(0)
        return self.builder.tree(self.source, self.finished.node)

    # --- issues

    def _fault(self, offset: int, message: str) -> SyntaxFault:
        return SyntaxFault((Issue(offset, message),))

    def _deep(self, offset: int) -> SyntaxFault:
        return self._fault(offset, f"the expression is nested more than {MAX_DEPTH} levels deep")

    def _unexpected(self, token: Token, wanted: str) -> SyntaxFault:
        if token.kind == END:
            return self._fault(token.offset, f"the expression ends here, but {wanted} is missing")
        text = shortened(token.text, 30)
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

    def _open(self, construct: Construct) -> None:
        """Starts an expression inside a construct."""
        if not self.levels:
            level = Level(construct, 1, 1, 1)
        else:
            outer = self.levels[-1]
            if construct.kind == "else":
                level = Level(construct, outer.depth + 1, outer.relations, outer.sums)
            else:
                relations, sums = outer.open()
                level = Level(construct, outer.depth + 1, relations + 1, sums + 1)
        if max(level.depth, level.relations, level.sums) > MAX_DEPTH:
            raise self._deep(construct.token.offset)
        self.levels.append(level)

    # --- operands

    def _operand(self) -> ParsedOperand | None:
        """Reads the start of an operand; None if it opens a construct, whose parts come first."""
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

    def _literal(self, token: Token, sign: Token | None = None) -> ParsedOperand:
        start = token.offset if sign is None else sign.offset
        try:
            value = value_of(token.kind, token.text, negative=sign is not None)
        except NoLiteral:
            raise self._unexpected(token, "a value") from None
        except BadLiteral as fault:
            raise self._fault(token.offset, str(fault)) from fault
        return ParsedOperand(Literal(self.builder.new(start, start, token.end), value), 0, start, token.end)

    def _named(self, token: Token) -> ParsedOperand | None:
        """Reads a name, a call of a function, or the name of a message and its `{`."""
        dot = token.kind == "."
        first = self._next() if dot else token
        if first.kind != "name":
            raise self._unexpected(first, "a name")
        message = self._message_name(first)
        if message is not None:
            return self._bracket(self._next(), name=("." if dot else "") + message, start=token.offset)
        if first.text in RESERVED:
            raise self._fault(first.offset, f"'{first.text}' is a reserved word and cannot be used as a name")
        name = ("." if dot else "") + first.text
        if self.tokens[self.position].kind == "(":
            return self._call(Construct("call", self._next(), token.offset, name=name))
        number = self.builder.new(first.offset, token.offset, first.end)
        return ParsedOperand(Identifier(number, name), 0, token.offset, first.end)

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

    def _call(self, construct: Construct) -> ParsedOperand | None:
        if self._accept(")"):
            return self.builder.finished(construct, self.tokens[self.position - 1])
        self._open(construct)
        return None

    def _bracket(self, token: Token, name: str = "", start: int | None = None) -> ParsedOperand | None:
        kind = {"(": "(", "[": "list", "{": "message" if name else "map"}[token.kind]
        construct = Construct(kind, token, token.offset if start is None else start, name=name)
        if kind != "(":
            closer = "]" if kind == "list" else "}"
            at = self.position + (self.tokens[self.position].kind == ",")
            if self.tokens[at].kind == closer:
                self.position = at + 1
                return self.builder.finished(construct, self.tokens[at])
        self._element(construct)
        return None

    def _element(self, construct: Construct) -> None:
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
            number = self.builder.new(colon.offset, name.offset, name.end)
            construct.keys.append((number, _unquoted(name), question))
        elif construct.kind == "map":
            construct.optional = question
        self._open(construct)

    # --- behind an operand

    def _suffix(self, operand: ParsedOperand) -> ParsedOperand | None:
        """Reads on behind an operand: a selection, an index, a call; or else the operand is complete.

        None: the next operand follows, or the expression is finished.
        """
        token = self._next()
        if token.kind == ".":
            return self._select(operand, token)
        if token.kind == "[":
            construct = Construct("index", token, operand.start, target=operand)
            construct.optional = self._accept("?")
            self._open(construct)
            return None
        level = self.levels[-1]
        if level.prefix is not None:
            operand = self._prefixed(level.prefix, operand)
            level.prefix = None
        binary = BINARY.get(token.kind)
        if binary is not None:
            self._reduce(level, binary[0], operand)
            level.operators.append((*binary, token))
            if max(level.open()) > MAX_DEPTH:
                raise self._deep(token.offset)
            return None
        return self._logical(level, operand, token)

    def _select(self, operand: ParsedOperand, dot: Token) -> ParsedOperand | None:
        optional = self._accept("?")
        name = self._next()
        if name.kind not in ("name", "quoted"):
            raise self._unexpected(name, "the name of a field or function")
        if name.kind == "name" and not optional and self.tokens[self.position].kind == "(":
            return self._call(Construct("call", self._next(), operand.start, target=operand, name=name.text))
        text = _unquoted(name)
        span = (operand.start, name.end)
        number = self.builder.new(dot.offset, *span)
        if not optional:
            return ParsedOperand(Select(number, operand.node, text), operand.height + 1, *span)
        field_name = Literal(self.builder.new(name.offset, name.offset, name.end), text)
        return ParsedOperand(Call(number, "_?._", None, (operand.node, field_name)), operand.height + 1, *span)

    def _prefixed(self, prefix: tuple[str, Token, int], operand: ParsedOperand) -> ParsedOperand:
        sign, token, count = prefix
        if count % 2 == 0:
            return ParsedOperand(operand.node, operand.height, token.offset, operand.end)
        number = self.builder.new(token.offset, token.offset, operand.end)
        node = Call(number, "!_" if sign == "!" else "-_", None, (operand.node,))
        return ParsedOperand(node, operand.height, token.offset, operand.end)

    def _logical(self, level: Level, operand: ParsedOperand, token: Token) -> ParsedOperand | None:
        """Reads the operators that bind weaker than comparisons, and the end of the expression."""
        self._reduce(level, 0, operand)
        value = level.operands.pop()
        if token.kind == "&&":
            level.conjuncts.append(value)
            level.ands.append(token)
            return None
        value = self.builder.balanced("_&&_", [*level.conjuncts, value], level.ands)
        level.conjuncts, level.ands = [], []
        if token.kind == "||":
            level.disjuncts.append(value)
            level.ors.append(token)
            return None
        value = self.builder.balanced("_||_", [*level.disjuncts, value], level.ors)
        level.disjuncts, level.ors = [], []
        if token.kind == "?" and level.question is None:
            level.condition, level.question = value, token
            return None
        if level.condition is not None and level.question is not None:
            if token.kind != ":":
                raise self._unexpected(token, "':' of the condition's other value")
            other = Construct("else", level.question, level.condition.start, target=level.condition, items=[value])
            self._open(other)
            return None
        return self._close(value, token)

    def _reduce(self, level: Level, precedence: int, operand: ParsedOperand) -> None:
        """Applies the waiting operators that bind at least as strongly, and leaves the operand."""
        while level.operators and level.operators[-1][0] >= precedence:
            _, name, token = level.operators.pop()
            left = level.operands.pop()
            number = self.builder.new(token.offset, left.start, operand.end)
            node = Call(number, name, None, (left.node, operand.node))
            operand = ParsedOperand(node, max(left.height, operand.height) + 1, left.start, operand.end)
        level.operands.append(operand)

    # --- the end of an expression

    def _close(self, value: ParsedOperand, token: Token) -> ParsedOperand | None:
        """Ends an expression, which `token` follows, and gives it to its construct."""
        construct = self.levels.pop().construct
        while construct.kind == "else":
            condition, then = construct.target, construct.items[0]
            assert condition is not None
            number = self.builder.new(construct.token.offset, condition.start, value.end)
            node = Call(number, "_?_:_", None, (condition.node, then.node, value.node))
            height = max(condition.height, then.height, value.height) + 1
            value = ParsedOperand(node, height, condition.start, value.end)
            construct = self.levels.pop().construct
        match construct.kind:
            case "whole":
                if token.kind != END:
                    raise self._unexpected(token, "an operator or the end of the expression")
                self.finished = value
                return None
            case "(":
                if token.kind != ")":
                    raise self._unclosed(construct, token, "')'")
                return ParsedOperand(value.node, value.height, construct.token.offset, token.end)
            case "index":
                return self._close_index(construct, value, token)
            case "map" if len(construct.keys) == len(construct.items):
                self._close_key(construct, value, token)
                return None
        return self._close_item(construct, value, token)

    def _close_index(self, construct: Construct, value: ParsedOperand, token: Token) -> ParsedOperand:
        if token.kind != "]":
            raise self._unclosed(construct, token, "']'")
        assert construct.target is not None
        number = self.builder.new(construct.token.offset, construct.start, token.end)
        function = "_[?_]" if construct.optional else "_[_]"
        node = Call(number, function, None, (construct.target.node, value.node))
        return ParsedOperand(node, max(construct.target.height, value.height) + 1, construct.start, token.end)

    def _close_item(self, construct: Construct, value: ParsedOperand, token: Token) -> ParsedOperand | None:
        """Ends an argument of a call, an element of a list or a value of a map or message."""
        closer = {"call": ")", "list": "]", "message": "}", "map": "}"}[construct.kind]
        construct.items.append(value)
        if token.kind == ",":
            if construct.kind != "call" and self._accept(closer):
                return self.builder.finished(construct, self.tokens[self.position - 1])
            self._element(construct)
            return None
        if token.kind != closer:
            raise self._unclosed(construct, token, f"',' or '{closer}'")
        return self.builder.finished(construct, token)

    def _close_key(self, construct: Construct, value: ParsedOperand, token: Token) -> None:
        """Ends a key of a map."""
        if token.kind != ":":
            raise self._unclosed(construct, token, "':' and the value of the entry")
        number = self.builder.new(token.offset, value.start, value.end)
        construct.keys.append((number, value, construct.optional))
        self._open(construct)

    def _unclosed(self, construct: Construct, token: Token, wanted: str) -> SyntaxFault:
        if token.kind != END:
            return self._unexpected(token, wanted)
        opened = place_at(self.source, construct.token.offset)
        where = f"{opened.line}:{opened.column + 1}"
        return self._fault(
            token.offset,
            f"the expression ends here, but {wanted} of the '{construct.token.text}' at {where} is missing",
        )


def _unquoted(name: Token) -> str:
    """The name without its backquotes."""
    return name.text.strip("`")
