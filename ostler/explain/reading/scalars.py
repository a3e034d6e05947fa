"""What a YAML scalar without quotes is: what kubectl makes of it.

YAML 1.1's words for true and false, octal numbers with and without an o, no numbers of base 60 and no dates.
"""

from __future__ import annotations

import math
import re

from kube.bodies import Json, one_line

_GLIMPSE = 60
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NUMBER_BEGINS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"x": 16, "o": 8, "b": 2}


def plain_value(text: str) -> Json:
    """What a scalar without quotes is for kubectl; raises ValueError for numbers that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    bare = text.replace("_", "")
    if _INTEGER.fullmatch(bare) and len(bare) < 400:
        return _integer(bare)
    if _FLOAT.fullmatch(bare):
        number = float(bare)
        if not math.isfinite(number):
            raise ValueError(f"the number {one_line(text, _GLIMPSE)} is too large")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is no number that the API knows")
    return text


def _integer(text: str) -> int | float:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-").lower()
    if len(digits) > 1 and digits[0] == "0":
        base = _BASES.get(digits[1])
        value = sign * (int(digits[2:], base) if base else int(digits, 8))
    else:
        value = sign * int(digits)
    return value if -(1 << 63) <= value < 1 << 64 else float(value)
