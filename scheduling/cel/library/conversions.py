"""Conversions: `int("5")`, `string(1.5)`, `timestamp("...")` and the rest, as Go's strconv and time read and write."""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite, isinf, isnan
from operator import attrgetter

from scheduling.cel.library.function import A, Library, function
from scheduling.cel.library.prices import TEXT, CallEstimate, CostRange, Price, text_cost
from scheduling.cel.library.times import SECOND, parse_duration, parse_timestamp, timestamp, timestamp_text
from scheduling.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    INT_MAX,
    INT_MIN,
    STRING,
    TIMESTAMP,
    UINT,
    UINT_MAX,
    Type,
    type_of,
)
from scheduling.cel.values import (
    CelFault,
    Duration,
    TypeValue,
    Unsigned,
    Value,
    checked_int,
    checked_uint,
    type_name,
    utf8,
)

_INT = re.compile(r"[+-]?[0-9]{1,400}")
_UINT = re.compile(r"[0-9]{1,400}")
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_DOUBLE = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX]_?(?:[0-9a-fA-F_]+\.?[0-9a-fA-F_]*|\.[0-9a-fA-F_]+)[pP][+-]?[0-9_]+")
_SPECIAL = re.compile(r"(?:[+-]?(?:inf|infinity)|nan)", re.IGNORECASE)
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_TWO_TO_64 = 2.0**64


def _failed(value: Value, target: Type) -> CelFault:
    return CelFault(f"type conversion error from '{type_name(value)}' to '{target.name}'")


def _text_to_int(text: str) -> Value:
    if _INT.fullmatch(text) and INT_MIN <= (number := int(text)) <= INT_MAX:
        return number
    raise _failed(text, INT)


def _text_to_uint(text: str) -> Value:
    if _UINT.fullmatch(text) and (number := int(text)) <= UINT_MAX:
        return Unsigned(number)
    raise _failed(text, UINT)


def text_to_double(text: str) -> float:
    """The number as Go's ParseFloat reads it. Raises CelFault for any other text and for a number that is too large."""
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


def text_to_duration(text: str) -> Value:
    """`duration(text)`. Raises CelFault."""
    nanoseconds = parse_duration(text)
    if nanoseconds is None:
        raise _failed(text, DURATION)
    return Duration(nanoseconds)


def text_to_timestamp(text: str) -> Value:
    """`timestamp(text)`. Raises CelFault."""
    moment = parse_timestamp(text)
    if moment is None:
        raise _failed(text, TIMESTAMP)
    return timestamp(moment.nanoseconds, moment.offset)


def _double_to_int(number: float) -> Value:
    if isnan(number) or not -(2.0**63) < number < 2.0**63:
        raise CelFault("integer overflow")
    return int(number)


def _double_to_uint(number: float) -> Value:
    if isnan(number) or number < 0 or number >= _TWO_TO_64:
        raise CelFault("unsigned integer overflow")
    return Unsigned(int(number))


def int_to_timestamp(seconds: int) -> Value:
    """`timestamp(seconds)`, counted since 1970. Raises CelFault."""
    return timestamp(seconds * SECOND)


def double_text(number: float) -> str:
    """The shortest text of a double as Go's `%g` writes it: an exponent below -4 and from 6 on, else none."""
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1 if number else 0
    head = "-" if sign else ""
    if power < -4 or power >= 6:
        fraction = f".{figures[1:]}" if len(figures) > 1 else ""
        return f"{head}{figures[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return head + plain_text(abs(number))


def plain_text(number: float) -> str:
    """The shortest text of a finite double without an exponent."""
    text = format(Decimal(repr(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


def duration_text(span: Duration) -> str:
    """The duration in seconds, as a double, with `s`."""
    whole, rest = divmod(abs(span.nanoseconds), SECOND)
    seconds = whole + rest / 1e9
    return f"{'-' if span.nanoseconds < 0 else ''}{plain_text(seconds)}s"


def _bytes_to_text(data: bytes) -> Value:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CelFault("invalid UTF-8 in bytes, cannot convert to string") from None


def _same(value: Value) -> Value:
    return value


_ENCODES = Price(
    text_cost(TEXT),
    lambda operands: CallEstimate(
        operands[0].known().times(TEXT), CostRange(operands[0].known().least, operands[0].known().most * 4 % 2**64)
    ),
)
"""Every character may become four bytes; the bound wraps around at 64 bits."""
_DECODES = Price(
    text_cost(TEXT),
    lambda operands: CallEstimate(
        operands[0].known().times(TEXT), CostRange(operands[0].known().least // 4, operands[0].known().most)
    ),
)

LIBRARY: Library = (
    function("type", "type", A, result=type_of(A), call=lambda value: TypeValue(type_name(value)), singleton=True),
    function("dyn", "to_dyn", A, result=DYN, call=_same, singleton=True),
    function("bool", "bool_to_bool", BOOL, result=BOOL, call=_same),
    function("bool", "string_to_bool", STRING, result=BOOL, call=_text_to_bool),
    function("bytes", "bytes_to_bytes", BYTES, result=BYTES, call=_same),
    function("bytes", "string_to_bytes", STRING, result=BYTES, call=utf8, price=_ENCODES),
    function("double", "double_to_double", DOUBLE, result=DOUBLE, call=_same),
    function("double", "int64_to_double", INT, result=DOUBLE, call=float),
    function("double", "string_to_double", STRING, result=DOUBLE, call=text_to_double),
    function("double", "uint64_to_double", UINT, result=DOUBLE, call=float),
    function("duration", "duration_to_duration", DURATION, result=DURATION, call=_same),
    function("duration", "string_to_duration", STRING, result=DURATION, call=text_to_duration),
    function("int", "int64_to_int64", INT, result=INT, call=_same),
    function("int", "double_to_int64", DOUBLE, result=INT, call=_double_to_int),
    function("int", "duration_to_int64", DURATION, result=INT, call=attrgetter("nanoseconds")),
    function("int", "string_to_int64", STRING, result=INT, call=_text_to_int),
    function("int", "timestamp_to_int64", TIMESTAMP, result=INT, call=lambda moment: moment.nanoseconds // SECOND),
    function("int", "uint64_to_int64", UINT, result=INT, call=lambda number: checked_int(int(number))),
    function("string", "string_to_string", STRING, result=STRING, call=_same),
    function("string", "bool_to_string", BOOL, result=STRING, call=lambda value: "true" if value else "false"),
    function("string", "bytes_to_string", BYTES, result=STRING, call=_bytes_to_text, price=_DECODES),
    function("string", "double_to_string", DOUBLE, result=STRING, call=double_text),
    function("string", "duration_to_string", DURATION, result=STRING, call=duration_text),
    function("string", "int64_to_string", INT, result=STRING, call=str),
    function("string", "timestamp_to_string", TIMESTAMP, result=STRING, call=timestamp_text),
    function("string", "uint64_to_string", UINT, result=STRING, call=lambda number: str(int(number))),
    function("timestamp", "timestamp_to_timestamp", TIMESTAMP, result=TIMESTAMP, call=_same),
    function("timestamp", "int64_to_timestamp", INT, result=TIMESTAMP, call=int_to_timestamp),
    function("timestamp", "string_to_timestamp", STRING, result=TIMESTAMP, call=text_to_timestamp),
    function("uint", "uint64_to_uint64", UINT, result=UINT, call=_same),
    function("uint", "double_to_uint64", DOUBLE, result=UINT, call=_double_to_uint),
    function("uint", "int64_to_uint64", INT, result=UINT, call=checked_uint),
    function("uint", "string_to_uint64", STRING, result=UINT, call=_text_to_uint),
)

CONVERSIONS = frozenset(each.function for each in LIBRARY)
"""Functions whose calls with a constant cost nothing: the planner computes them."""
