"""The functions of semantic versions: `semver`, `isSemver`, order, numbers."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.semver import Semver, SemverError, normalize, parse
from scheduling.cel.types import BOOL, INT_MAX, SEMVER, STRING
from scheduling.cel.values import Fault, Value


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

IMPLEMENTATIONS = (
    Implementation("string_to_semver", "semver", (STRING,), _read),
    Implementation("string_bool_to_semver", "semver", (STRING, BOOL), _read),
    Implementation("is_semver_string", "isSemver", (STRING,), _is_semver),
    Implementation("is_semver_string_bool", "isSemver", (STRING, BOOL), _is_semver),
    Implementation("semver_is_greater_than", "isGreaterThan", _TWO, _greater),
    Implementation("semver_is_less_than", "isLessThan", _TWO, _less),
    Implementation("semver_compare_to", "compareTo", _TWO, Semver.compare),
    Implementation("semver_major", "major", _ONE, lambda version: _signed(version.major)),
    Implementation("semver_minor", "minor", _ONE, lambda version: _signed(version.minor)),
    Implementation("semver_patch", "patch", _ONE, lambda version: _signed(version.patch)),
)
