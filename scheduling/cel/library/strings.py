"""The extension for strings, in its second version (no `quote` by method, no `reverse`).

Positions are characters from 0; a position outside the text is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scheduling.cel.library.function import Library, function, method
from scheduling.cel.library.prices import (
    COPIES_TEXT,
    NOTHING,
    SCANS,
    TEXT,
    UNBOUNDED,
    CallEstimate,
    CallOperand,
    CostRange,
    Price,
    text_cost,
)
from scheduling.cel.types import INT, STRING, list_of
from scheduling.cel.values import TEXT_LIMIT, CelFault, TooExpensive, Value, elements, list_size, size_of, spend, utf8

_WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""The characters that Go's `unicode.IsSpace` accepts; Python would strip four control characters more."""
ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
"""The escapes of characters in quotes."""


def _outside(position: int) -> CelFault:
    return CelFault(f"index out of range: {position}")


def _char_at(text: str, position: int) -> Value:
    if not 0 <= position <= len(text):
        raise _outside(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> Value:
    if start < 0:
        raise _outside(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start) if start < len(text) else -1


def _last_index_of(text: str, part: str) -> Value:
    if not part:
        return len(text)
    if len(utf8(text)) < len(utf8(part)):
        return -1
    return _last_until(text, part, len(text) - 1)


def _last_until(text: str, part: str, until: int) -> Value:
    if until < 0:
        raise _outside(until)
    if not part:
        return min(until, len(text))
    return text.rfind(part, 0, until + len(part)) if until < len(text) else -1


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _replace(text: str, old: str, new: str, times: int = -1) -> Value:
    if len(new) > len(old):
        count = text.count(old)
        if times >= 0:
            count = min(count, times)
        if len(text) + count * (len(new) - len(old)) > TEXT_LIMIT:
            raise TooExpensive
    return text.replace(old, new, times if times >= 0 else -1)


def _split(text: str, separator: str) -> Value:
    return list(text) if not separator else list(text.split(separator))


def _split_at_most(text: str, separator: str, parts: int) -> Value:
    if parts == 0:
        return []
    if parts < 0:
        return _split(text, separator)
    if separator:
        return list(text.split(separator, parts - 1))
    if len(text) <= parts:
        return list(text)
    return [*text[: parts - 1], text[parts - 1 :]]


def _substring(text: str, start: int) -> Value:
    if not 0 <= start <= len(text):
        raise _outside(start)
    return text[start:]


def _between(text: str, start: int, end: int) -> Value:
    if start > end:
        raise CelFault(f"invalid substring range. start: {start}, end: {end}")
    for each in (start, end):
        if not 0 <= each <= len(text):
            raise _outside(each)
    return text[start:end]


def _join(texts: Value, separator: str = "") -> Value:
    parts: list[str] = []
    length = 0
    spend(list_size(texts))
    for each in elements(texts):
        if type(each) is not str:
            raise CelFault("join: invalid input: not all elements are strings")
        parts.append(each)
        length += len(each) + len(separator)
        if length > TEXT_LIMIT:
            raise TooExpensive
    return separator.join(parts)


def _quote(text: str) -> Value:
    return '"' + "".join(ESCAPES.get(each, each) for each in text) + '"'


def _replaced(operands: Sequence[CallOperand]) -> CallEstimate:
    """The size of a text in which every `old` became `new`."""
    text, old, new = (each.range() for each in operands[:3])
    kept_most, kept_least = 0, 0
    if old.least == 0:  # an empty text occurs between all characters
        most, kept_most = min(text.most + 1, UNBOUNDED), text.most
    elif new.most <= old.least:
        most, kept_most = 0, text.most
    else:
        most = _pieces(text.most, old.least)
    if old.most == 0:
        least, kept_least = min(text.least + 1, UNBOUNDED), text.least
    elif old.most <= new.least:
        least, kept_least = 0, text.least
    else:
        least = _pieces(text.least, old.most)
    return CallEstimate(text.times(2 * TEXT), CostRange(least, most) * new + CostRange(kept_least, kept_most))


def _pieces(size: int, part: int) -> int:
    count = math.ceil(float(size) / float(part))
    return count if count < 2**64 else 2**63  # what the conversion of a float that is too large gives on amd64


def _split_into(operands: Sequence[CallOperand]) -> CallEstimate:
    size = operands[0].range()
    limit = operands[2].written_int() if len(operands) > 2 else None
    return CallEstimate(size.times(2 * TEXT), CostRange(0, size.most if limit is None else limit % 2**64))


def _joined(operands: Sequence[CallOperand]) -> CallEstimate:
    count = operands[0].range()
    element = operands[0].element()
    size = count * element.range() if element is not None else NOTHING
    if len(operands) > 1:
        size += operands[1].range() * CostRange(max(count.least - 1, 0), max(count.most - 1, 0))
    return CallEstimate(size.times(TEXT), size)


def _quoted(operands: Sequence[CallOperand]) -> CallEstimate:
    size = operands[0].known()
    return CallEstimate(size.times(TEXT), CostRange((size.least + 2) % 2**64, (size.most * 2 + 2) % 2**64))


_REPLACES = Price(text_cost(2 * TEXT), _replaced, by_name=True)
_SPLITS = Price(text_cost(2 * TEXT), _split_into, by_name=True)
_JOINS = Price(lambda _arguments, result: math.ceil(size_of(result) * 2 * TEXT), _joined, by_name=True)
_QUOTES = Price(text_cost(TEXT), _quoted)
_TEXTS = list_of(STRING)

_THREE = (STRING, STRING, STRING)

LIBRARY: Library = (
    method("charAt", "string_char_at_int", STRING, INT, result=STRING, call=_char_at),
    method("indexOf", "string_index_of_string", STRING, STRING, result=INT, call=_index_of, price=SCANS),
    method("indexOf", "string_index_of_string_int", STRING, STRING, INT, result=INT, call=_index_of, price=SCANS),
    method("lastIndexOf", "string_last_index_of_string", STRING, STRING, result=INT, call=_last_index_of, price=SCANS),
    method(
        "lastIndexOf", "string_last_index_of_string_int", STRING, STRING, INT, result=INT, call=_last_until, price=SCANS
    ),
    method(
        "lowerAscii",
        "string_lower_ascii",
        STRING,
        result=STRING,
        call=lambda text: text.translate(_LOWER),
        price=COPIES_TEXT,
    ),
    method(
        "upperAscii",
        "string_upper_ascii",
        STRING,
        result=STRING,
        call=lambda text: text.translate(_UPPER),
        price=COPIES_TEXT,
    ),
    method("replace", "string_replace_string_string", *_THREE, result=STRING, call=_replace, price=_REPLACES),
    method("replace", "string_replace_string_string_int", *_THREE, INT, result=STRING, call=_replace, price=_REPLACES),
    method("split", "string_split_string", STRING, STRING, result=_TEXTS, call=_split, price=_SPLITS),
    method("split", "string_split_string_int", STRING, STRING, INT, result=_TEXTS, call=_split_at_most, price=_SPLITS),
    method("substring", "string_substring_int", STRING, INT, result=STRING, call=_substring, price=COPIES_TEXT),
    method("substring", "string_substring_int_int", STRING, INT, INT, result=STRING, call=_between, price=COPIES_TEXT),
    method("trim", "string_trim", STRING, result=STRING, call=lambda text: text.strip(_WHITESPACE), price=COPIES_TEXT),
    function("strings.quote", "strings_quote", STRING, result=STRING, call=_quote, price=_QUOTES),
    method("join", "list_join", _TEXTS, result=STRING, call=_join, price=_JOINS),
    method("join", "list_join_string", _TEXTS, STRING, result=STRING, call=_join, price=_JOINS),
)
