"""The function `"...%s...".format([...])`: the clauses `%s %d %f %e %b %o %x %X`, in Kubernetes' American English."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf, isnan

from scheduling.cel.library.conversions import double_text, duration_text, text_to_double
from scheduling.cel.library.function import Library, method
from scheduling.cel.library.prices import TEXT, CallEstimate, Price, text_cost
from scheduling.cel.library.strings import ESCAPES
from scheduling.cel.library.times import timestamp_text
from scheduling.cel.relations import unmap_key
from scheduling.cel.types import DYN, STRING, list_of
from scheduling.cel.values import (
    TEXT_LIMIT,
    CelFault,
    Duration,
    Timestamp,
    TooExpensive,
    TypeValue,
    Unsigned,
    Value,
    elements,
    is_list,
    is_map,
    spend,
    spend_on_text,
    type_name,
    utf8,
)

_PRECISION = 6
_MAX_PRECISION = 32_767
"""Unlike here, a larger one wraps around at 16 bits in Kubernetes."""
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _format(text: str, arguments: Value) -> Value:
    values = elements(arguments)
    pieces: list[str] = []
    length = position = used = 0
    while True:
        percent = text.find("%", position)
        if percent < 0:
            break
        pieces.append(text[position:percent])
        if text[percent + 1 : percent + 2] == "%":
            pieces.append("%")
            position = percent + 2
            continue
        if used >= len(values):
            raise CelFault(f"index {used} out of range")
        clause, position = _clause(text, percent + 1)
        pieces.append(clause(values[used]))
        length += len(pieces[-1])
        spend_on_text(len(pieces[-1]))
        if length > TEXT_LIMIT:
            raise TooExpensive
        used += 1
    pieces.append(text[position:])
    return "".join(pieces)


def _clause(text: str, position: int) -> tuple[Callable[[Value], str], int]:
    """The clause behind a percent sign, and the position behind it."""
    if position >= len(text):
        raise CelFault("unexpected end of string")
    precision = _PRECISION
    if text[position] == ".":
        end = position + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        if end >= len(text):
            raise CelFault("could not find end of precision specifier")
        if end == position + 1 or end - position > 6 or int(text[position + 1 : end]) > _MAX_PRECISION:
            raise CelFault("error while parsing precision")
        precision = int(text[position + 1 : end])
        position = end
    letter = text[position]
    if letter == "f":
        return lambda value: _fixed(value, precision), position + 1
    if letter == "e":
        return lambda value: _scientific(value, precision), position + 1
    clause = _CLAUSES.get(letter)
    if clause is None:
        raise CelFault(f'unrecognized formatting clause "{letter}"')
    return clause, position + 1


def _text(value: Value) -> str:
    if is_list(value) or is_map(value):
        return _nested(value)
    if value is None:
        return "null"
    text = _scalar(value)
    if text is None:
        raise CelFault(f"string clause cannot be used on {type_name(value)}")
    return text


def _scalar(value: Value) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    return value.name if isinstance(value, TypeValue) else None


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CelFault("could not convert bytes to string") from None


def _nested(value: Value) -> str:
    """Writes a list or map as CEL does, without recursion and up to a limit."""
    pieces: list[str] = []
    pending: list[Value | _Raw] = [value]
    length = 0
    while pending:
        each = pending.pop()
        if isinstance(each, _Raw):
            pieces.append(each.text)
        elif is_list(each):
            inner = elements(each)
            spend(len(inner))
            pending.append(_Raw("]"))
            for position in range(len(inner) - 1, -1, -1):
                pending.append(inner[position])
                pending.append(_Raw(", " if position else "["))
            if not inner:
                pending.append(_Raw("["))
        elif is_map(each):
            spend(len(each))  # type: ignore[arg-type]
            pending.extend(reversed(_entries(each)))
        else:
            pieces.append(_member(each))
        length += len(pieces[-1]) if pieces else 0
        if length > TEXT_LIMIT:
            raise TooExpensive
    return "".join(pieces)


class _Raw:
    """Text that stands between values."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _entries(mapping: Value) -> list[Value | _Raw]:
    found: list[tuple[str, Value]] = []
    for stored, value in mapping.items():  # type: ignore[attr-defined]
        key = unmap_key(stored)
        if not isinstance(key, str | bool | int):
            raise CelFault(f"no formatting function for map key of type {type_name(key)}")
        found.append((_member(key), value))
    found.sort(key=lambda entry: utf8(entry[0]))
    parts: list[Value | _Raw] = [_Raw("{")]
    for position, (text, value) in enumerate(found):
        parts.append(_Raw(f"{', ' if position else ''}{text}:"))
        parts.append(value)
    parts.append(_Raw("}"))
    return parts


def _member(value: Value) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return "b" + _quoted(_decoded(value))
    if isinstance(value, float):
        if isnan(value) or isinf(value):
            return f'"{double_text(value)}"'
        return f"{value:.6f}"
    if isinstance(value, Timestamp):
        return f'timestamp("{timestamp_text(value)}")'
    if isinstance(value, Duration):
        return f'duration("{duration_text(value)}")'
    text = "null" if value is None else _scalar(value)
    if text is None:
        raise CelFault(f"no formatting function for {type_name(value)}")
    return text


def _quoted(text: str) -> str:
    """The text as Go's `%q` writes it."""
    spend(len(text))
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(character: str) -> str:
    known = ESCAPES.get(character)
    if known is not None:
        return known
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _integer(value: Value, form: str, refusal: str) -> str:
    if type(value) is not int and type(value) is not Unsigned:
        raise CelFault(f"{refusal} {type_name(value)}")
    return format(int(value), form)


def _double(value: Value, clause: str) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, str) and value in _SPECIAL:
        return text_to_double(value)
    raise CelFault(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _fixed(value: Value, precision: int) -> str:
    number = _double(value, "fixed-point")
    return _unbounded(number) or _without_negative_zero(number, f"{number:,.{precision}f}")


def _scientific(value: Value, precision: int) -> str:
    """Always writes six digits: cel-go takes the precision for a width."""
    number = _double(value, "scientific")
    special = _unbounded(number)
    if special:
        return special.rjust(precision)
    mantissa, _, exponent = f"{number:.{_PRECISION}e}".partition("e")
    return f"{_without_negative_zero(number, mantissa)}\u00d710{exponent.lstrip('+').translate(_SUPERSCRIPTS)}".rjust(
        precision
    )


def _without_negative_zero(number: float, text: str) -> str:
    return text.lstrip("-") if number == 0 else text


def _unbounded(number: float) -> str:
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "∞" if number > 0 else "-∞"
    return ""


def _binary(value: Value) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return _integer(value, "b", "only integers and bools can be formatted as binary, was given")


def _hex(value: Value) -> str:
    if isinstance(value, str):
        return utf8(value).hex()
    if isinstance(value, bytes):
        return value.hex()
    return _integer(value, "x", "hex clause cannot be used on")


_CLAUSES: dict[str, Callable[[Value], str]] = {
    "s": _text,
    "d": lambda value: _integer(value, "d", "decimal clause can only be used on integers, was given"),
    "b": _binary,
    "o": lambda value: _integer(value, "o", "octal clause can only be used on integers, was given"),
    "x": _hex,
    "X": lambda value: _hex(value).upper(),
}

_PRICE = Price(text_cost(TEXT), lambda operands: CallEstimate(operands[0].known().times(TEXT)))

LIBRARY: Library = (
    method("format", "string_format", STRING, list_of(DYN), result=STRING, call=_format, price=_PRICE, variadic=True),
)
