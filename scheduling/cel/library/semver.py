"""Kubernetes' library of semantic versions: `semver`, `isSemver` (both can normalise first), order, numbers.

Source of the rules: semver.org 2.0.0 as github.com/blang/semver/v4 reads it (numbers are 64 bits without sign), and the
normalisation of the API server's library. Build metadata is kept and written, and has no part in any comparison.
Attributes of devices hold these versions too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from scheduling.cel.errors import TextError
from scheduling.cel.library.function import Library, function, is_readable, method, reader
from scheduling.cel.library.prices import READS_TEXT
from scheduling.cel.types import BOOL, INT, INT_MAX, SEMVER, STRING, Type
from scheduling.cel.values import Opaque, Value

_UINT64 = 2**64
_NUMBER = re.compile(r"[0-9]*")
_WORD = re.compile(r"[0-9A-Za-z-]+")


class SemverError(TextError):
    """A text that is not a semantic version."""

    expected = "is not a semantic version: "


@dataclass(frozen=True, slots=True, eq=False)
class Semver(Opaque):
    """One version. `prerelease` holds its identifiers, numeric ones as int."""

    cel_type: ClassVar[Type] = SEMVER

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return self._order() == other._order() if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._order())

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        if self.build:
            text += "+" + ".".join(self.build)
        return text

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1, as `self` comes before, with or after `other`."""
        ours, theirs = self._order(), other._order()
        return (ours > theirs) - (ours < theirs)

    def _order(self) -> tuple[object, ...]:
        """A prerelease comes before its release, numeric identifiers before words, fewer before more."""
        identifiers = tuple((0, each, "") if isinstance(each, int) else (1, 0, each) for each in self.prerelease)
        return self.major, self.minor, self.patch, not self.prerelease, identifiers


@lru_cache(maxsize=4096)
def parse(text: str) -> Semver:
    """Read a version, strictly. Raises SemverError."""
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise SemverError(text, "it must have the form MAJOR.MINOR.PATCH")
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    major, minor, small = (
        _number(text, *each) for each in (("major", parts[0]), ("minor", parts[1]), ("patch", patch))
    )
    words = tuple(build.split(".")) if plus else ()
    for word in words:
        if not _WORD.fullmatch(word):
            raise SemverError(text, f'"{word}" in its build metadata must be letters, digits or hyphens')
    identifiers = tuple(_identifier(text, each) for each in prerelease.split(".")) if dash else ()
    return Semver(major, minor, small, identifiers, words)


def normalize(text: str) -> Semver:
    """Read a version leniently: a leading `v`, leading zeros and missing minor and patch numbers are forgiven.

    Spaces are not. A short version must not have a prerelease or build metadata. Raises SemverError.
    """
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_zeros(each) for each in parts]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise SemverError(text, "without a patch number it must not have a prerelease or build metadata")
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part) < 2 and part.isascii():
        return part
    part = part.lstrip("0")
    return part if part[:1] in tuple("0123456789") else "0" + part


def _number(text: str, name: str, digits: str) -> int:
    """A number without sign, of 64 bits, without leading zeros."""
    if not digits or not _NUMBER.fullmatch(digits):
        raise SemverError(text, f'its {name} number "{digits}" must be digits')
    if len(digits) > 1 and digits[0] == "0":
        raise SemverError(text, f'its {name} number "{digits}" must not begin with a zero')
    if len(digits) > 20 or int(digits) >= _UINT64:
        raise SemverError(text, f"its {name} number must be below 2**64")
    return int(digits)


def _identifier(text: str, word: str) -> int | str:
    if word and _NUMBER.fullmatch(word):
        return _number(text, "prerelease", word)
    if not _WORD.fullmatch(word):
        raise SemverError(text, f'"{word}" in its prerelease must be letters, digits or hyphens')
    return word


def _parse(text: str, lenient: bool = False) -> Semver:
    return normalize(text) if lenient else parse(text)


_READ = reader(_parse, SemverError)
_IS_SEMVER = is_readable(_parse, SemverError)


def _signed(number: int) -> Value:
    """The number of a version as an int: Kubernetes keeps the 64 bits, so a large one becomes negative."""
    return number if number <= INT_MAX else number - 2**64


LIBRARY: Library = (
    function("semver", "string_to_semver", STRING, result=SEMVER, call=_READ, price=READS_TEXT),
    function("semver", "string_bool_to_semver", STRING, BOOL, result=SEMVER, call=_READ, price=READS_TEXT),
    function("isSemver", "is_semver_string", STRING, result=BOOL, call=_IS_SEMVER, price=READS_TEXT),
    function("isSemver", "is_semver_string_bool", STRING, BOOL, result=BOOL, call=_IS_SEMVER, price=READS_TEXT),
    method("isGreaterThan", "semver_is_greater_than", SEMVER, SEMVER, result=BOOL, call=lambda a, b: a.compare(b) > 0),
    method("isLessThan", "semver_is_less_than", SEMVER, SEMVER, result=BOOL, call=lambda a, b: a.compare(b) < 0),
    method("compareTo", "semver_compare_to", SEMVER, SEMVER, result=INT, call=Semver.compare),
    method("major", "semver_major", SEMVER, result=INT, call=lambda version: _signed(version.major)),
    method("minor", "semver_minor", SEMVER, result=INT, call=lambda version: _signed(version.minor)),
    method("patch", "semver_patch", SEMVER, result=INT, call=lambda version: _signed(version.patch)),
)
