"""Conversions: `int("5")`, `string(1.5)`, `timestamp("...")` and the rest, as Go's strconv and time read and write."""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite, isinf, isnan

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.functions.times import parse_duration, parse_timestamp, timestamp_text
from scheduling.cel.moments import SECOND, timestamp
from scheduling.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    INT_MAX,
    INT_MIN,
    STRING,
    TIMESTAMP,
    UINT,
    UINT_MAX,
    Type,
)
from scheduling.cel.values import Duration, Fault, Function, Unsigned, Value, checked_int, checked_uint, type_name, utf8

_INT = re.compile(r"[+-]?[0-9]{1,400}")
_UINT = re.compile(r"[0-9]{1,400}")
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_DOUBLE = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX]_?(?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9_]+")
_SPECIAL = re.compile(r"(?:[+-]?(?:inf|infinity)|nan)", re.IGNORECASE)
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_TWO_TO_64 = 2.0**64


def _failed(value: Value, target: Type) -> Fault:
    return Fault(f"type conversion error from '{type_name(value)}' to '{target.name}'")


def _text_to_int(text: str) -> Value:
    if _INT.fullmatch(text) and INT_MIN <= (number := int(text)) <= INT_MAX:
        return number
    raise _failed(text, INT)


def _text_to_uint(text: str) -> Value:
    if _UINT.fullmatch(text) and (number := int(text)) <= UINT_MAX:
        return Unsigned(number)
    raise _failed(text, UINT)


def text_to_double(text: str) -> float:
    """The number as Go's ParseFloat reads it. Raises Fault when it is none, or too large."""
    if _DOUBLE.fullmatch(text):
        number = float(text)
        if isfinite(number):
            return number
    elif _SPECIAL.fullmatch(text):
        return float(text)
    elif _HEX_DOUBLE.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except (ValueError, OverflowError):
            pass  # too large: the error below says so
    raise _failed(text, DOUBLE)


def _text_to_bool(text: str) -> Value:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _failed(text, BOOL)


def _text_to_duration(text: str) -> Value:
    nanoseconds = parse_duration(text)
    if nanoseconds is None:
        raise _failed(text, DURATION)
    return Duration(nanoseconds)


def _text_to_timestamp(text: str) -> Value:
    moment = parse_timestamp(text)
    if moment is None:
        raise _failed(text, TIMESTAMP)
    return timestamp(moment.nanoseconds, moment.offset)


def _double_to_int(number: float) -> Value:
    if isnan(number) or not -(2.0**63) < number < 2.0**63:
        raise Fault("integer overflow")
    return int(number)


def _double_to_uint(number: float) -> Value:
    if isnan(number) or number < 0 or number >= _TWO_TO_64:
        raise Fault("unsigned integer overflow")
    return Unsigned(int(number))


def _int_to_timestamp(seconds: int) -> Value:
    return timestamp(seconds * SECOND)


def double_text(number: float) -> str:
    """The shortest text of a double as Go's `%g` writes it: an exponent below -4 and from 21 digits, else none."""
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1 if number else 0
    head = "-" if sign else ""
    if power < -4 or (power >= 6 and power >= _EXPONENT_FROM):
        fraction = f".{figures[1:]}" if len(figures) > 1 else ""
        return f"{head}{figures[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return head + plain_text(abs(number))


_EXPONENT_FROM = 6
"""Go's shortest `%g` writes an exponent from this power of ten on, unless all digits stand before the point."""


def plain_text(number: float) -> str:
    """The shortest text of a finite double without an exponent."""
    text = format(Decimal(repr(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


def _double_to_text(number: float) -> Value:
    return double_text(number)


def duration_text(span: Duration) -> str:
    """The duration in seconds, as a double, with `s`."""
    whole, rest = divmod(abs(span.nanoseconds), SECOND)
    seconds = whole + rest / 1e9
    return f"{'-' if span.nanoseconds < 0 else ''}{plain_text(seconds)}s"


def _bytes_to_text(data: bytes) -> Value:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Fault("invalid UTF-8 in bytes, cannot convert to string") from None


def _bool_to_text(value: bool) -> Value:
    return "true" if value else "false"


def _same(value: Value) -> Value:
    return value


_CONVERSIONS: tuple[tuple[str, str, Type, Function], ...] = (
    ("bool_to_bool", "bool", BOOL, _same),
    ("string_to_bool", "bool", STRING, _text_to_bool),
    ("bytes_to_bytes", "bytes", BYTES, _same),
    ("string_to_bytes", "bytes", STRING, utf8),
    ("double_to_double", "double", DOUBLE, _same),
    ("int64_to_double", "double", INT, float),
    ("string_to_double", "double", STRING, text_to_double),
    ("uint64_to_double", "double", UINT, float),
    ("duration_to_duration", "duration", DURATION, _same),
    ("string_to_duration", "duration", STRING, _text_to_duration),
    ("int64_to_int64", "int", INT, _same),
    ("double_to_int64", "int", DOUBLE, _double_to_int),
    ("duration_to_int64", "int", DURATION, lambda span: span.nanoseconds),
    ("string_to_int64", "int", STRING, _text_to_int),
    ("timestamp_to_int64", "int", TIMESTAMP, lambda moment: moment.nanoseconds // SECOND),
    ("uint64_to_int64", "int", UINT, lambda number: checked_int(int(number))),
    ("string_to_string", "string", STRING, _same),
    ("bool_to_string", "string", BOOL, _bool_to_text),
    ("bytes_to_string", "string", BYTES, _bytes_to_text),
    ("double_to_string", "string", DOUBLE, _double_to_text),
    ("duration_to_string", "string", DURATION, duration_text),
    ("int64_to_string", "string", INT, str),
    ("timestamp_to_string", "string", TIMESTAMP, timestamp_text),
    ("uint64_to_string", "string", UINT, lambda number: str(int(number))),
    ("timestamp_to_timestamp", "timestamp", TIMESTAMP, _same),
    ("int64_to_timestamp", "timestamp", INT, _int_to_timestamp),
    ("string_to_timestamp", "timestamp", STRING, _text_to_timestamp),
    ("uint64_to_uint64", "uint", UINT, _same),
    ("double_to_uint64", "uint", DOUBLE, _double_to_uint),
    ("int64_to_uint64", "uint", INT, checked_uint),
    ("string_to_uint64", "uint", STRING, _text_to_uint),
)

IMPLEMENTATIONS = tuple(Implementation(name, function, (kind,), call) for name, function, kind, call in _CONVERSIONS)

CONVERSIONS = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"),
)
"""Functions whose calls with a constant cost nothing: they are made when the expression is compiled."""
