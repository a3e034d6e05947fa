"""The words of an expression: source text to tokens.

One regular expression, written so that the first alternative that matches is also the longest, as the specification
demands. It never backtracks over more than the word at hand, so the time is linear in the length of the source. The
first thing that is no word ends the reading: what follows it would only be noise to a reader of the message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from scheduling.cel.errors import Issue, SyntaxFault

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
"""Kind of the token behind the last one."""

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
        """Offset behind the word."""
        return self.offset + len(self.text)


def tokenize(source: str) -> list[Token]:
    """All tokens of a source and one of kind `END`; raises `SyntaxFault` at the first character that starts none."""
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
        hint = "names consist of the letters A to Z, digits and '_'; anything else belongs into a string"
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"unexpected character {shown!r}" + (f": {hint}" if hint else "")
