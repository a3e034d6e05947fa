"""JSON as Go's standard decoder reads it, as far as the kubelet's state files need it.

Whether a kubelet uses a state file depends on that decoder's habits: members match without regard to case, ``null``
keeps the zero value, the first member of the wrong type decides, nothing but white space may follow. Errors carry
the decoder's own texts, because these are what a kubelet's log shows. Pure.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from typing import NoReturn

from node import values
from node.documents import DocumentRefused, check_count

_LONE_SURROGATE = "[\ud800-\udfff]"
_NOT_BASE64 = "[^A-Za-z0-9+/=]"
_NUMBERS = frozenset({"int", "int64", "uint32", "uint64", "checksum.Checksum", "time.Duration"})
"""Go types of the state files that are numbers."""


class KubeletStateError(Exception):
    """A state file that a kubelet cannot use; the message is the kubelet's own."""


class CorruptedStateError(KubeletStateError):
    """The checksum does not fit the data: ``expected`` is what the data gives, ``found`` what the file says.

    ``content``: what the data says anyway, for people alone; None if it is not data of that file.
    """

    def __init__(self, expected: int, found: int, content: object) -> None:
        super().__init__("checkpoint is corrupted")
        self.expected = expected
        self.found = found
        self.content = content


class JsonError(KubeletStateError, ValueError):
    """Text that the decoder refuses; the message is the decoder's."""


class Number(str):
    """A number as it is written, since neither range nor form may be lost before its type is known."""

    __slots__ = ()


@values.quick
@values.value
class Object(values.Value):
    """An object's members in the order of the text, doubles included."""

    pairs: tuple[tuple[str, Value], ...]


Value = Object | list["Value"] | str | Number | bool | None


@values.quick
@values.value
class FieldPlace(values.Value):
    """Where a value is and what it has to be, in the decoder's words: struct and path, and the Go type."""

    path: str
    type: str

    def refuse(self, value: Value) -> NoReturn:
        """Raise ``JsonError`` because ``value`` has another type."""
        where = f"Go struct field {self.path}" if self.path else "Go value"
        raise JsonError(f"json: cannot unmarshal {self._kind(value)} into {where} of type {self.type}")

    def _kind(self, value: Value) -> str:
        if isinstance(value, Object):
            return "object"
        if isinstance(value, list):
            return "array"
        if isinstance(value, Number):
            # The decoder prints a number only where another one was expected.
            return f"number {value}" if self.type in _NUMBERS else "number"
        return "bool" if isinstance(value, bool) else "string"

    def of(self, type_name: str) -> FieldPlace:
        """The same place for an element of another type."""
        return FieldPlace(self.path, type_name)


def parse(text: bytes) -> Value:
    """The value in ``text``; raises ``JsonError``, also for more values than any kubelet's state has."""
    try:
        check_count(text)
    except DocumentRefused as error:
        raise JsonError(str(error)) from error
    content = text.decode("utf-8", "replace")
    try:
        value: Value = json.loads(
            content,
            object_pairs_hook=lambda pairs: Object(tuple((_clean(name), item) for name, item in pairs)),
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise JsonError(_syntax_error(content, error)) from error
    except RecursionError as error:
        raise JsonError("exceeded max depth") from error
    return value


def members(value: Value, place: FieldPlace) -> Iterator[tuple[str, Value]] | None:
    """The members of an object; None for null; raises ``JsonError`` for anything else."""
    if value is None:
        return None
    if not isinstance(value, Object):
        place.refuse(value)
    return iter(value.pairs)


def elements(value: Value, place: FieldPlace) -> list[Value] | None:
    """The elements of an array; None for null; raises ``JsonError`` for anything else."""
    if value is not None and not isinstance(value, list):
        place.refuse(value)
    return value


def string(value: Value, place: FieldPlace) -> str:
    """A string; null gives the empty one; raises ``JsonError`` for anything else."""
    if value is None:
        return ""
    if isinstance(value, Number) or not isinstance(value, str):
        place.refuse(value)
    return _clean(value)


def unsigned(value: Value, place: FieldPlace) -> int:
    """An unsigned integer of 64 bits; null gives 0; raises ``JsonError`` for anything else."""
    if value is None:
        return 0
    if not isinstance(value, Number) or not re.fullmatch("[0-9]{1,20}", value) or int(value) >= 1 << 64:
        place.refuse(value)
    return int(value)


def integer(value: Value, place: FieldPlace) -> int:
    """A signed integer of 64 bits; null gives 0; raises ``JsonError`` for anything else."""
    if value is None:
        return 0
    if not isinstance(value, Number) or not re.fullmatch("-?[0-9]{1,19}", value) or not _is_int64(int(value)):
        place.refuse(value)
    return int(value)


def blob(value: Value, place: FieldPlace) -> bytes | None:
    """Bytes in base64; None for null; raises ``JsonError`` for anything else."""
    if value is None:
        return None
    text = re.sub("[\r\n]", "", string(value, place))
    bad = re.search(_NOT_BASE64, text)
    if bad is not None:
        raise JsonError(f"illegal base64 data at input byte {bad.start()}")
    if len(text) % 4 or "=" in text[:-2] or text[-2:-1] == "=" != text[-1:]:
        raise JsonError(f"illegal base64 data at input byte {len(text)}")
    return binascii.a2b_base64(text)


def integer_key(name: str, place: FieldPlace, type_name: str = "int64") -> int:
    """A map's key that has to be an integer of 64 bits; raises ``JsonError``."""
    if re.fullmatch("[+-]?[0-9]{1,19}", name):
        number = int(name)
        if _is_int64(number):
            return number
    raise JsonError(f"json: cannot unmarshal number {name} into Go struct field {place.path} of type {type_name}")


def _is_int64(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def _clean(text: str) -> str:
    return re.sub(_LONE_SURROGATE, "\ufffd", text)


def _refuse_constant(word: str) -> NoReturn:
    raise JsonError(f"invalid character {word[0]!r} looking for beginning of value")


def _syntax_error(content: str, error: json.JSONDecodeError) -> str:
    rest = content[error.pos :]
    if error.msg == "Extra data":
        return f"invalid character {rest[0]!r} after top-level value"
    if not rest.strip() or error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    return f"invalid character {rest[0]!r} at byte {len(content[: error.pos].encode())} ({error.msg})"
