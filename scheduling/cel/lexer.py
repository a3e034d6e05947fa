"""The words of an expression: source text to tokens, and the values of those that are literals.

One regular expression, written so that the first alternative that matches is also the longest, as the specification
demands. It never backtracks over more than the word at hand, so the time is linear in the length of the source. The
first invalid character ends the reading: what follows it would only be noise to a reader of the message.

Literals follow the specification: integers of 64 bits, strings of code points that may not be surrogates, line ends
inside of literals read as one line feed. Escapes of `\\x` and of three octal digits mean a code point in a string and a
byte in a byte sequence.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from scheduling.cel.errors import Issue, SyntaxFault, shortened
from scheduling.cel.syntax import Uint
from scheduling.cel.types import INT_MAX, INT_MIN, UINT_MAX

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""

_STRING = "|".join(
    (
        r'[rR]"""[\s\S]*?"""',
        r"[rR]'''[\s\S]*?'''",
        rf'"""(?:[^\\]|{_ESCAPE})*?"""',
        rf"'''(?:[^\\]|{_ESCAPE})*?'''",
        r'[rR]"[^"\n\r]*+"',
        r"[rR]'[^'\n\r]*+'",
        rf'"(?:[^\\"\n\r]|{_ESCAPE})*+"',
        rf"'(?:[^\\'\n\r]|{_ESCAPE})*+'",
    )
)

_WORD = re.compile(
    rf"""
      (?P<blank>  (?:[\t\ \r\n\f]|//[^\n]*+)++ )
    | (?P<bytes>  [bB](?:{_STRING}) )
    | (?P<string> {_STRING} )
    | (?P<name>   [A-Za-z_][A-Za-z0-9_]*+ )
    | (?P<float>  [0-9]++\.[0-9]++(?:[eE][+-]?[0-9]++)? | [0-9]++[eE][+-]?[0-9]++ | \.[0-9]++(?:[eE][+-]?[0-9]++)? )
    | (?P<uint>   0x[0-9a-fA-F]++[uU] | [0-9]++[uU] )
    | (?P<int>    0x[0-9a-fA-F]++ | [0-9]++ )
    | (?P<quoted> `[A-Za-z0-9_./\ -]++` )
    | (?P<sign>   ==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,!?:+*/%-] )
    """,
    re.VERBOSE,
)

_KEYWORDS = frozenset({"in", "true", "false", "null"})

END = "end"
"""The kind of the token behind the last word."""

_UNCLOSED = "this string is not closed on its line, or holds an unknown escape (a backslash is written '\\\\')"

_HINTS = {
    "=": "a single '=' is not an operator, write '==' to compare",
    "&": "a single '&' is not an operator, write '&&'",
    "|": "a single '|' is not an operator, write '||'",
    '"': _UNCLOSED,
    "'": _UNCLOSED,
    "`": "a name in backquotes must be closed and may hold only letters, digits, '_', '.', '-', '/' and blanks",
    ";": "an expression has no ';' and no second statement",
    "@": "'@' is not part of any name or operator",
    "$": "'$' is not part of any name or operator",
    "#": "'#' is not part of any name or operator; a comment starts with '//'",
    "“": 'write straight quotes (") around strings',
    "”": 'write straight quotes (") around strings',
}


class Token(NamedTuple):
    """One word.

    `kind`: name, quoted (a name in backquotes), int, uint, float, string, bytes, `END`, or for operators, brackets and
    the four keywords the text itself. `offset` counts characters from 0.
    """

    kind: str
    text: str
    offset: int

    @property
    def end(self) -> int:
        """The offset behind the word."""
        return self.offset + len(self.text)


def tokenize(source: str) -> list[Token]:
    """All tokens of a source and one `END`; raises `SyntaxFault` at the first character that starts no token."""
    tokens: list[Token] = []
    position = 0
    match = _WORD.match
    while found := match(source, position):
        kind = found.lastgroup or ""
        if kind != "blank":
            text = found.group()
            if kind == "sign" or (kind == "name" and text in _KEYWORDS):
                kind = text
            tokens.append(Token(kind, text, position))
        position = found.end()
    if position < len(source):
        raise SyntaxFault((Issue(position, _unreadable(source[position])),))
    tokens.append(Token(END, "", position))
    return tokens


def _unreadable(character: str) -> str:
    hint = _HINTS.get(character)
    if hint is None and not character.isascii() and character.isalnum():
        hint = "names consist of the letters A to Z, digits and '_'; anything else belongs in a string"
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"unexpected character {shown!r}" + (f": {hint}" if hint else "")


_ESCAPED = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)

_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class BadLiteral(ValueError):
    """A literal of the right form that has no value."""


class NoLiteral(ValueError):
    """A token that is not a literal."""


def value_of(kind: str, text: str, *, negative: bool) -> bool | int | Uint | float | str | bytes | None:
    """The value of a token (see `Token`); `negative` for an int or float behind a minus.

    Raises `BadLiteral`, and `NoLiteral` for tokens of other kinds.
    """
    match kind:
        case "string":
            content, raw = _content(text)
            return content if raw else _ESCAPED.sub(_character, content)
        case "int":
            return _int(text, negative=negative)
        case "true" | "false":
            return kind == "true"
        case "float":
            value = float(text)
            if value == float("inf"):
                raise BadLiteral(f"number {shortened(text, 30)} is too large")
            return -value if negative else value
        case "null":
            return None
        case "uint":
            number = _whole(text[:-1])
            if number > UINT_MAX:
                raise BadLiteral(f"unsigned integer {shortened(text, 30)} does not fit into 64 bits")
            return Uint(number)
        case "bytes":
            return _bytes(text)
    raise NoLiteral(text)


def _int(text: str, *, negative: bool) -> int:
    value = _whole(text) * (-1 if negative else 1)
    if not INT_MIN <= value <= INT_MAX:
        raise BadLiteral(f"integer {'-' if negative else ''}{shortened(text, 30)} does not fit into 64 bits")
    return value


def _bytes(text: str) -> bytes:
    content, raw = _content(text[1:])
    if raw:
        return content.encode("utf-8")
    result = bytearray()
    position = 0
    for found in _ESCAPED.finditer(content):
        result += content[position : found.start()].encode("utf-8")
        result += _byte(found)
        position = found.end()
    return bytes(result + content[position:].encode("utf-8"))


def _whole(text: str) -> int:
    if text.startswith("0x"):
        return int(text, 16)
    digits = text.lstrip("0") or "0"
    if len(digits) > 20:  # no 64-bit number is longer, and Python refuses to read very long ones
        return UINT_MAX + 1
    return int(digits)


def _content(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    content = text[width:-width]
    if "\r" in content:
        content = content.replace("\r\n", "\n").replace("\r", "\n")
    return content, raw


def _character(found: re.Match[str]) -> str:
    octal, hexadecimal, short, long, simple = found.groups()
    if simple is not None:
        return _SHORT.get(simple, simple)
    code = int(octal, 8) if octal is not None else int(hexadecimal or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise BadLiteral(f"escape {found.group()} does not name a character")
    return chr(code)


def _byte(found: re.Match[str]) -> bytes:
    octal, hexadecimal, short, long, simple = found.groups()
    if simple is not None:
        return _SHORT.get(simple, simple).encode("utf-8")
    if short is not None or long is not None:
        raise BadLiteral(f"escape {found.group()} is not allowed in bytes, write the bytes with \\x")
    return bytes([int(octal, 8) if octal is not None else int(hexadecimal, 16)])
