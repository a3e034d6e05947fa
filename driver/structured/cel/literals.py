"""What literals mean: the text of a number, string or byte sequence as a value.

The rules are those of the specification: integers of 64 bits, strings of code points that may not be surrogates, line
ends inside of literals read as one line feed, and escapes of `\\x` and three octal digits that mean a code point in a
string and a byte in a byte sequence.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)

_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1


class BadLiteral(ValueError):
    """A literal that has the form but no value."""


def int_value(text: str, *, negative: bool = False) -> int:
    """The value of an integer literal, decimal or with `0x`; `BadLiteral` beyond 64 bits."""
    value = _whole(text) * (-1 if negative else 1)
    if not INT_MIN <= value <= INT_MAX:
        raise BadLiteral(f"integer {'-' if negative else ''}{_short(text)} does not fit into 64 bits")
    return value


def uint_value(text: str) -> int:
    """The value of a literal like `1u`; `BadLiteral` beyond 64 bits."""
    value = _whole(text[:-1])
    if value > UINT_MAX:
        raise BadLiteral(f"unsigned integer {_short(text)} does not fit into 64 bits")
    return value


def float_value(text: str, *, negative: bool = False) -> float:
    """The value of a floating point literal; `BadLiteral` for one that is too large."""
    value = float(text)
    if value == float("inf"):
        raise BadLiteral(f"number {_short(text)} is too large")
    return -value if negative else value


def string_value(text: str) -> str:
    """The value of a string literal with its quotes; `BadLiteral` for an escape that names no character."""
    content, raw = _content(text)
    if raw or "\\" not in content:
        return content
    return _ESCAPE.sub(_character, content)


def bytes_value(text: str) -> bytes:
    """The value of a byte literal with its `b` and quotes; `BadLiteral` for an escape that names no byte."""
    content, raw = _content(text[1:])
    if raw or "\\" not in content:
        return content.encode("utf-8")
    result = bytearray()
    position = 0
    for found in _ESCAPE.finditer(content):
        result += content[position : found.start()].encode("utf-8")
        result += _byte(found)
        position = found.end()
    return bytes(result + content[position:].encode("utf-8"))


def _whole(text: str) -> int:
    if text.startswith("0x"):
        return int(text, 16)
    if len(text.lstrip("0")) > 20:  # no 64-bit number is longer, and Python refuses to read very long ones
        return UINT_MAX + 1
    return int(text)


def _short(text: str) -> str:
    return text if len(text) <= 30 else text[:30] + "…"


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
        raise BadLiteral(f"escape {found.group()} names no character")
    return chr(code)


def _byte(found: re.Match[str]) -> bytes:
    octal, hexadecimal, short, long, simple = found.groups()
    if simple is not None:
        return _SHORT.get(simple, simple).encode("utf-8")
    if short is not None or long is not None:
        raise BadLiteral(f"escape {found.group()} is not allowed in bytes, write the bytes with \\x")
    return bytes([int(octal, 8) if octal is not None else int(hexadecimal, 16)])
