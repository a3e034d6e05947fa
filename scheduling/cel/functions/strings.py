"""The strings extension: positions are characters from 0, and a position outside the text is an error."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.types import INT, STRING, list_of
from scheduling.cel.values import TEXT_LIMIT, Fault, TooExpensive, Value, elements, list_size, spend, utf8

_WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""What Go's `unicode.IsSpace` holds for space; Python strips four control characters more."""
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
"""What stands for a character in quotes."""


def _outside(position: int) -> Fault:
    return Fault(f"index out of range: {position}")


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
    return _last_index_until(text, part, len(text) - 1)


def _last_index_until(text: str, part: str, until: int) -> Value:
    if until < 0:
        raise _outside(until)
    if not part:
        return min(until, len(text))
    return text.rfind(part, 0, until + len(part)) if until < len(text) else -1


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _lower_ascii(text: str) -> Value:
    return text.translate(_LOWER)


def _upper_ascii(text: str) -> Value:
    return text.translate(_UPPER)


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


def _substring_between(text: str, start: int, end: int) -> Value:
    if start > end:
        raise Fault(f"invalid substring range. start: {start}, end: {end}")
    for each in (start, end):
        if not 0 <= each <= len(text):
            raise _outside(each)
    return text[start:end]


def _trim(text: str) -> Value:
    return text.strip(_WHITESPACE)


def _join(texts: Value, separator: str = "") -> Value:
    parts: list[str] = []
    length = 0
    spend(list_size(texts))
    for each in elements(texts):
        if type(each) is not str:
            raise Fault("join: invalid input: not all elements are strings")
        parts.append(each)
        length += len(each) + len(separator)
        if length > TEXT_LIMIT:
            raise TooExpensive
    return separator.join(parts)


def _quote(text: str) -> Value:
    return '"' + "".join(ESCAPES.get(each, each) for each in text) + '"'


_TEXTS = list_of(STRING)

IMPLEMENTATIONS = (
    Implementation("string_char_at_int", "charAt", (STRING, INT), _char_at),
    Implementation("string_index_of_string", "indexOf", (STRING, STRING), _index_of),
    Implementation("string_index_of_string_int", "indexOf", (STRING, STRING, INT), _index_of),
    Implementation("string_last_index_of_string", "lastIndexOf", (STRING, STRING), _last_index_of),
    Implementation("string_last_index_of_string_int", "lastIndexOf", (STRING, STRING, INT), _last_index_until),
    Implementation("string_lower_ascii", "lowerAscii", (STRING,), _lower_ascii),
    Implementation("string_upper_ascii", "upperAscii", (STRING,), _upper_ascii),
    Implementation("string_replace_string_string", "replace", (STRING, STRING, STRING), _replace),
    Implementation("string_replace_string_string_int", "replace", (STRING, STRING, STRING, INT), _replace),
    Implementation("string_split_string", "split", (STRING, STRING), _split),
    Implementation("string_split_string_int", "split", (STRING, STRING, INT), _split_at_most),
    Implementation("string_substring_int", "substring", (STRING, INT), _substring),
    Implementation("string_substring_int_int", "substring", (STRING, INT, INT), _substring_between),
    Implementation("string_trim", "trim", (STRING,), _trim),
    Implementation("strings_quote", "strings.quote", (STRING,), _quote),
    Implementation("list_join", "join", (_TEXTS,), _join),
    Implementation("list_join_string", "join", (_TEXTS, STRING), _join),
)
