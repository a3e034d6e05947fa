"""Quantities as Kubernetes writes and compares them.

A quantity is a number with a suffix (`500m`, `1.5Gi`, `12e6`). Its smallest unit is a billionth, so every quantity is
an exact integer of nano-units: `nanos` is what to add, subtract and compare where speed counts.

Beside the value a quantity keeps the form that Kubernetes keeps (an unscaled integer, a power of ten, whether it left
64 bits): what an API server would store (`text`), and whether the value counts as an integer, depend on that form and
not on the value alone. `Quantity` values are equal when their numbers are equal, whatever their form.

Source of the rules: `resource.Quantity` of k8s.io/apimachinery, behaviour included that looks like a slip there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, total_ordering

from scheduling.api.int64 import (
    INT64_DIGITS,
    INT64_MAX,
    INT64_MIN,
    divided_away,
    is_int64,
    power_of_ten,
    shifted,
    wrapped,
)

_NANO = -9
_WRAPPING = frozenset((1, 2, 3, 6, 9))  # powers of ten that overflow to the lowest 64 bits, others to 0
_MAX_EXPONENT = 10_000  # ours, as the next: Kubernetes accepts more and then computes for hours
_MAX_DIGITS = 10_000
_REMEMBERED_LENGTH = 64  # longer texts are rare, and would fill the memory
_STR_DIGITS = 4_000  # Python refuses int <-> str above 4300 digits; Decimal does not
_JSON_SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

# Possessive: a long text that does not fit must not be tried in every way to cut it up.
_SHAPE = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?+[0-9]*+)")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)")


class Format(Enum):
    """How a quantity is written: the family of its suffix."""

    DECIMAL_SI = "DecimalSI"  # n u m "" k M G T P E
    BINARY_SI = "BinarySI"  # Ki Mi Gi Ti Pi Ei
    DECIMAL_EXPONENT = "DecimalExponent"  # e3, e-6


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}
_SUFFIXES = "a suffix: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e with an exponent"


class QuantityFault(Enum):
    """Why a text is not a quantity."""

    SHAPE = f"it must be a number and, without a space, {_SUFFIXES}"
    NUMBER = "its numeric part has no digits"
    LENGTH = f"it has more than {_MAX_DIGITS} digits"
    SUFFIX = f"after its number there may be {_SUFFIXES}"
    EXPONENT = f"its exponent is above {_MAX_EXPONENT}"


class QuantityError(ValueError):
    """A text that is not a quantity. `value` is the text, `fault` the kind of error."""

    def __init__(self, value: str, fault: QuantityFault) -> None:
        shown = value if len(value) <= 80 else value[:77] + "..."
        super().__init__(f'"{shown}" is not a quantity: {fault.value}')
        self.value = value
        self.fault = fault


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """One quantity. Make it with `parse`, `of_json`, `from_int` or `from_milli`.

    nanos: the exact value in billionths. unscaled, scale: the value as unscaled * 10**scale, in the form Kubernetes
    keeps. wide: that form left 64 bits (such a value never counts as an integer, however small). source: the text it
    was read from if an API server would keep that text, else empty.
    """

    nanos: int
    unscaled: int
    scale: int
    wide: bool
    format: Format
    source: str = ""

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Quantity) -> Quantity:
        """The sum. Written in the format of `self`, or of `other` if `self` is zero."""
        return _sum(self, other.nanos, other.unscaled, other)

    def __sub__(self, other: Quantity) -> Quantity:
        """The difference. Written in the format of `self`, or of `other` if `self` is zero."""
        if other.unscaled == INT64_MIN and not other.wide:
            # Kubernetes negates within 64 bits, where the least number is its own negative.
            total = _sum(self, other.nanos, other.unscaled, other)
            if not total.wide:
                return total
        return _sum(self, -other.nanos, -other.unscaled, other)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, -self.unscaled, self.scale, self.wide, self.format)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1, as `self` is less than, equal to or greater than `other`."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    @property
    def form(self) -> tuple[int, int, Format, str, bool]:
        """The key by which Kubernetes compares values as it stores them, and not as numbers."""
        return self.unscaled, self.scale, self.format, self.source, self.wide

    @property
    def text(self) -> str:
        """What an API server stores for this quantity."""
        return self.source or _canonical(self)

    def value(self) -> int:
        """The value in whole units, rounded up, as a 64 bit integer (Kubernetes' `Value()`, see `scaled`)."""
        return self.scaled(0)

    def milli_value(self) -> int:
        """The value in thousandths, rounded up, as a 64 bit integer (Kubernetes' `MilliValue()`, see `scaled`)."""
        return self.scaled(-3)

    def scaled(self, scale: int) -> int:
        """The value in units of 10**scale as Kubernetes computes it.

        Rounded away from zero. Out of 64 bits: 0 or, for a wide form and some powers, the lowest 64 bits; and a
        negative value in a wide form rounds to one above its truncation.
        """
        drop = scale - self.scale
        if not self.wide:
            if drop > 0:
                return divided_away(self.unscaled, drop)
            fitting = shifted(self.unscaled, -drop)
            if fitting is None:
                return wrapped(self.unscaled * int(10**-drop)) if -drop in _WRAPPING else 0
            return fitting
        if drop == 0:
            return wrapped(self.unscaled)
        if drop < 0:
            power = int(10**-drop) if -drop <= INT64_DIGITS else INT64_MIN
            return wrapped(wrapped(self.unscaled) * power)
        if self.unscaled < INT64_MAX and drop <= INT64_DIGITS:
            low = wrapped(self.unscaled)
            whole, rest = divmod(abs(low), int(10**drop))
            return (whole if low >= 0 else -whole) + (rest != 0)
        whole, rest = divmod(self.unscaled, 10**drop)
        return wrapped(wrapped(whole) + (rest != 0))

    def as_int64(self) -> int | None:
        """The value if Kubernetes takes it for an integer of 64 bits, else None.

        Whole numbers count only in the narrow form: `1500m` plus `500m` does not, `9223372036854775807` does not.
        """
        if self.wide or self.scale < 0:
            return None
        return shifted(self.unscaled, self.scale)

    @property
    def is_integer(self) -> bool:
        """Whether `as_int64` gives a value."""
        return self.as_int64() is not None

    def as_approximate_float(self) -> float:
        """The nearest float by the arithmetic of Kubernetes, which multiplies two rounded factors."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = float("inf") if self.unscaled > 0 else float("-inf")
        return base if self.scale == 0 else base * power_of_ten(self.scale)


def parse(text: str) -> Quantity:
    """Read a quantity, strictly (no spaces around it). Digits below a billionth round up (away from zero).

    Raises QuantityError.
    """
    return _remembered(text) if len(text) <= _REMEMBERED_LENGTH else _parsed(text)


def _parsed(text: str) -> Quantity:
    match = _SHAPE.fullmatch(text)
    if match is None or not text:
        raise QuantityError(text, QuantityFault.SHAPE)
    if text == "0":
        return Quantity(0, 0, 0, False, Format.DECIMAL_SI, text)
    sign, zeros, whole, fraction, suffix = match.groups(default="")
    if len(whole) + len(fraction) > _MAX_DIGITS:
        raise QuantityError(text, QuantityFault.LENGTH)
    exponent, family = _suffix(text, suffix)
    number = whole or "0"
    narrow = _narrow(text, sign == "-", number, fraction, exponent=exponent, family=family)
    if narrow is not None:
        return narrow
    if not zeros + whole + fraction:
        raise QuantityError(text, QuantityFault.NUMBER)
    return _wide(text, sign == "-", _integer(number + fraction), len(fraction), exponent=exponent, family=family)


_remembered = lru_cache(maxsize=8192)(_parsed)


def of_json(value: object) -> Quantity:
    """The quantity of a JSON value: a text (spaces around it are ignored), a number, or null for zero.

    Raises QuantityError.
    """
    if value is None:
        return parse("0")
    if isinstance(value, str):
        return parse(value.strip(_JSON_SPACE))
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = str(value) if isinstance(value, bool) else f"a {type(value).__name__}"
        raise QuantityError(shown, QuantityFault.SHAPE)
    if isinstance(value, float):
        return parse(repr(value))
    if value.bit_length() > 4 * _MAX_DIGITS:
        raise QuantityError("a whole number", QuantityFault.LENGTH)
    return parse(_digits(value))


def from_int(value: int, family: Format = Format.DECIMAL_SI) -> Quantity:
    """A whole number as a quantity."""
    return Quantity(value * 10**9, value, 0, not is_int64(value), family)


def from_milli(value: int, family: Format = Format.DECIMAL_SI) -> Quantity:
    """A number of thousandths as a quantity."""
    return Quantity(value * 10**6, value, -3, not is_int64(value), family)


ZERO = parse("0")


def _suffix(text: str, suffix: str) -> tuple[int, Format]:
    """The power (of ten, or of two for `BINARY_SI`) and the format of a suffix."""
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], Format.DECIMAL_SI
    if suffix in _BINARY:
        return _BINARY[suffix], Format.BINARY_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(text, QuantityFault.SUFFIX)
    digits = match[1].lstrip("+-").lstrip("0") or "0"
    exponent = int(digits) if len(digits) < 20 else INT64_MAX + 1
    exponent = -exponent if match[1][0] == "-" else exponent
    if not is_int64(exponent):
        raise QuantityError(text, QuantityFault.SUFFIX)
    return (exponent + 2**31) % 2**32 - 2**31, Format.DECIMAL_EXPONENT  # Kubernetes keeps the lowest 32 bits


def _narrow(text: str, negative: bool, whole: str, fraction: str, *, exponent: int, family: Format) -> Quantity | None:
    """The quantity in the form of 64 bits, or None when its digits might not fit."""
    if family is Format.BINARY_SI:
        if fraction or 15 - len(whole) - exponent * 3 // 10 - 1 < 0:
            return None
        magnitude, scale = int(whole) << exponent, 0
        keeps_text = int(whole) & 7 != 0
    else:
        digits, scale = whole + fraction, exponent - len(fraction)
        if len(digits) > INT64_DIGITS or scale < _NANO:
            return None
        magnitude = int(digits)
        keeps_text = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    if scale > _MAX_EXPONENT:
        if magnitude:
            raise QuantityError(text, QuantityFault.EXPONENT)
        scale = _MAX_EXPONENT
    unscaled = -magnitude if negative else magnitude
    return Quantity(unscaled * 10 ** (scale - _NANO), unscaled, scale, False, family, text if keeps_text else "")


def _wide(text: str, negative: bool, magnitude: int, places: int, *, exponent: int, family: Format) -> Quantity:
    """The quantity in the form without bounds: rounded up to a billionth; binary ones capped at 2**63 - 1."""
    if family is Format.BINARY_SI:
        magnitude <<= exponent
        scale = -places
    else:
        scale = exponent - places
    if magnitude == 0:
        # A zero keeps its scale and hands it on to sums; kept within bounds here.
        return Quantity(0, 0, max(-1000, min(scale, _MAX_EXPONENT)), True, family)
    if scale > _MAX_EXPONENT:
        raise QuantityError(text, QuantityFault.EXPONENT)
    nanos = divided_away(magnitude, _NANO - scale) if scale < _NANO else magnitude * 10 ** (scale - _NANO)
    unscaled, scale = nanos, _NANO
    if family is Format.BINARY_SI and nanos > INT64_MAX * 10**9:
        unscaled, scale, nanos = INT64_MAX, 0, INT64_MAX * 10**9
    if family is Format.BINARY_SI and nanos < 10**9:
        family = Format.DECIMAL_SI
    if negative:
        nanos, unscaled = -nanos, -unscaled
    return Quantity(nanos, unscaled, scale, True, family)


def _sum(left: Quantity, nanos: int, unscaled: int, right: Quantity) -> Quantity:
    """`left` plus a value that has the scale, the width and the format of `right`."""
    format_ = left.format if left.nanos else right.format
    if not left.wide and not right.wide:
        if unscaled == 0:
            return Quantity(left.nanos, left.unscaled, left.scale, False, format_)
        if left.unscaled == 0:
            return Quantity(nanos, unscaled, right.scale, False, format_)
    scale = min(left.scale, right.scale)
    ours, theirs = left.unscaled * 10 ** (left.scale - scale), unscaled * 10 ** (right.scale - scale)
    total = ours + theirs
    wide = left.wide or right.wide or not (is_int64(ours) and is_int64(theirs) and is_int64(total))
    return Quantity(left.nanos + nanos, total, scale, wide, format_)


def _canonical(quantity: Quantity) -> str:
    """The shortest writing without fraction; a binary format gives way for small and for broken numbers.

    A power without a suffix is left out, as in Kubernetes: `1000000E` is stored as `1`.
    """
    nanos, format_ = quantity.nanos, quantity.format
    if nanos == 0:
        return "0"
    if format_ is Format.BINARY_SI:
        whole, rest = divmod(nanos, 10**9)
        if not rest and abs(whole) >= 1024:
            times = 0
            while whole % 1024 == 0:
                whole //= 1024
                times += 1
            return _digits(whole) + _BINARY_SUFFIX.get(times * 10, "")
        format_ = Format.DECIMAL_SI
    mantissa, zeros = _without_zeros(quantity.unscaled)
    power = quantity.scale + zeros
    mantissa, power = mantissa * 10 ** (power % 3), power - power % 3
    if format_ is Format.DECIMAL_SI:
        return _digits(mantissa) + _DECIMAL_SUFFIX.get(power, "")
    return _digits(mantissa) + (f"e{power}" if power else "")


def _without_zeros(value: int) -> tuple[int, int]:
    """The value (not 0) without the zeros at its end, and how many these are; halving, since long division is slow."""
    zeros, step = 0, _MAX_EXPONENT
    while step:
        whole, rest = divmod(value, 10**step) if value.bit_length() > 3 * step else (value, 1)
        if rest:
            step //= 2
        else:
            value, zeros = whole, zeros + step
    return value, zeros


def _integer(digits: str) -> int:
    if len(digits) < _STR_DIGITS:
        return int(digits)
    # The agent never meets such a number, and the module with its library takes 0.3 MB.
    from decimal import Decimal

    return int(Decimal(digits))


def _digits(value: int) -> str:
    if value.bit_length() < 3 * _STR_DIGITS:
        return str(value)
    from decimal import Decimal

    return str(Decimal(value))
