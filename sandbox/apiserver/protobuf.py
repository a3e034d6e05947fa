"""Reads objects that clients send in Kubernetes' protobuf form, as current Go clients do by default.

An object comes in an envelope that names its version and kind. What is read becomes the JSON that the same client would
have sent. Answers stay JSON: every client takes them. Only messages that drivers write are known; a client that sends
another kind is refused as one that sends an unknown form.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from node.documents import parse_json
from sandbox.apiserver.kinds import RESOURCE_GROUP, Json
from sandbox.apiserver.protobuf_fields import FIELDS, FIELDS_OF_V1BETA1

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_TYPE, _RAW, _ENCODING = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS: Final = range(-62135596800, 253402300800)
"""Seconds of the years that a time can have as text."""


class UnknownKindError(ValueError):
    """The envelope has a kind whose fields are not known here."""


@dataclass(frozen=True, slots=True)
class _Field:
    """``form``: how often it comes, ``*``, ``%``, ``~`` or nothing; ``keeps_zero``: zero is a value of its own."""

    name: str
    type: str
    form: str
    keeps_zero: bool


_Messages = Mapping[str, Mapping[int, _Field]]


def decode(data: bytes) -> Json:
    """The object in ``data`` as JSON; raises ``UnknownKindError``, and ValueError for other bytes."""
    if not data.startswith(_MAGIC):
        raise ValueError("the body does not begin as an object in protobuf does")
    envelope = dict(_fields(data[len(_MAGIC) :]))
    named = dict(_fields(_blob(envelope.get(_TYPE, b""))))
    version, kind = (_blob(named.get(number, b"")).decode() for number in (1, 2))
    if _blob(envelope.get(_ENCODING, b"")):
        raise ValueError("the object in the envelope is encoded once more")
    messages = _messages(version)
    if kind not in messages:
        raise UnknownKindError(f"{kind} of {version}")
    return {"apiVersion": version, "kind": kind, **_message(messages, kind, _blob(envelope.get(_RAW, b"")))}


@cache
def _table(text: str) -> _Messages:
    found: dict[str, dict[int, _Field]] = {}
    for line in text.strip().replace("\n  ", " ").splitlines():
        message, _, fields = line.partition(": ")
        found[message] = {}
        for each in fields.split(", "):
            number, name, kind = each.split()
            form = kind[0] if kind[0] in "*%~" else ""
            found[message][int(number)] = _Field(name, kind.strip("*%~!"), form, kind.endswith("!"))
    return found


def _messages(version: str) -> _Messages:
    if version == f"{RESOURCE_GROUP}/v1beta1":
        return {**_table(FIELDS), **_table(FIELDS_OF_V1BETA1)}
    return _table(FIELDS)


def _message(messages: _Messages, name: str, data: bytes) -> Json:
    """A message's fields as JSON; those that are not known are left out."""
    found: Json = {}
    for number, value in _fields(data):
        field = messages[name].get(number)
        if field is None:
            continue
        if field.form == "*":
            found.setdefault(field.name, []).extend(_elements(messages, field, value))
        elif field.form == "%":
            entry = dict(_fields(_blob(value)))
            key = _blob(entry.get(1, b"")).decode()
            found.setdefault(field.name, {})[key] = _value(messages, field, entry.get(2, b""))
        elif field.form == "~":
            found |= _message(messages, field.type, _blob(value))
        else:
            one = _value(messages, field, value)
            if field.keeps_zero or one not in ("", 0, None) or isinstance(one, dict):
                found[field.name] = one
    return found


def _elements(messages: _Messages, field: _Field, value: int | bytes) -> Iterator[Any]:
    """One element of a list, or many numbers that are packed."""
    if field.type in ("int", "bool") and isinstance(value, bytes):
        place = 0
        while place < len(value):
            number, place = _varint(value, place)
            yield _value(messages, field, number)
    else:
        yield _value(messages, field, value)


def _value(messages: _Messages, field: _Field, value: int | bytes) -> Any:
    if field.type in messages:
        return _message(messages, field.type, _blob(value))
    return _TYPES[field.type](value)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and raw value of each field; raises ValueError."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == _BYTES:
            length, place = _varint(data, place)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field {number} has the unknown wire type {kind}")
        if length > len(data) - place:
            raise ValueError(f"field {number} is longer than the message")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if place >= len(data):
            raise ValueError("a number ends with the message")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place
    raise ValueError(f"a number has more than {_LONGEST_VARINT} bytes")


def _blob(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where text or a message belongs")  # noqa: TRY004 - of the bytes' form
    return value


def _integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("text stands where a number belongs")  # noqa: TRY004 - of the bytes' form
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _time(value: int | bytes) -> datetime | None:
    """A time, None for the empty one."""
    found = {number: _integer(part) for number, part in _fields(_blob(value))}
    seconds = found.get(1, 0)
    if seconds not in _YEARS:
        raise ValueError(f"a time is {seconds} s from 1970")
    if not found:
        return None
    return _EPOCH + timedelta(seconds=seconds, microseconds=found.get(2, 0) // 1000)


def _seconds(value: int | bytes) -> str | None:
    time = _time(value)
    return None if time is None else time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micros(value: int | bytes) -> str | None:
    time = _time(value)
    return None if time is None else time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _quantity(value: int | bytes) -> str:
    return _blob(dict(_fields(_blob(value))).get(1, b"")).decode()


def _raw(value: int | bytes) -> Any:
    data = _blob(dict(_fields(_blob(value))).get(1, b""))
    return parse_json(data) if data else None


_TYPES: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "string": lambda value: _blob(value).decode(),
    "bytes": lambda value: base64.b64encode(_blob(value)).decode(),
    "int": _integer,
    "bool": lambda value: bool(_integer(value)),
    "Time": _seconds,
    "MicroTime": _micros,
    "Quantity": _quantity,
    "RawExtension": _raw,
    "FieldsV1": _raw,
}
