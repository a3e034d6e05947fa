"""The functions of semantic versions: `semver`, `isSemver`, order, numbers."""

from __future__ import annotations

from driver.structured.cel.functions.registry import Overload
from driver.structured.cel.semver import Semver, SemverError, normalize, parse
from driver.structured.cel.types import BOOL, SEMVER, STRING
from driver.structured.cel.values import INT_MAX, Fault, Value


def _read(text: str, lenient: bool = False) -> Value:
    try:
        return normalize(text) if lenient else parse(text)
    except SemverError as error:
        raise Fault(str(error)) from error


def _is_semver(text: str, lenient: bool = False) -> Value:
    try:
        _ = normalize(text) if lenient else parse(text)
    except SemverError:
        return False
    return True


def _signed(number: int) -> Value:
    """Numbers of versions have no sign, ints have one: Kubernetes keeps the 64 bits."""
    return number if number <= INT_MAX else number - 2**64


def _greater(one: Semver, other: Semver) -> Value:
    return one.compare(other) > 0


def _less(one: Semver, other: Semver) -> Value:
    return one.compare(other) < 0


_ONE = (SEMVER,)
_TWO = (SEMVER, SEMVER)

OVERLOADS = (
    Overload("string_to_semver", "semver", (STRING,), _read),
    Overload("string_bool_to_semver", "semver", (STRING, BOOL), _read),
    Overload("is_semver_string", "isSemver", (STRING,), _is_semver),
    Overload("is_semver_string_bool", "isSemver", (STRING, BOOL), _is_semver),
    Overload("semver_is_greater_than", "isGreaterThan", _TWO, _greater),
    Overload("semver_is_less_than", "isLessThan", _TWO, _less),
    Overload("semver_compare_to", "compareTo", _TWO, Semver.compare),
    Overload("semver_major", "major", _ONE, lambda version: _signed(version.major)),
    Overload("semver_minor", "minor", _ONE, lambda version: _signed(version.minor)),
    Overload("semver_patch", "patch", _ONE, lambda version: _signed(version.patch)),
)
