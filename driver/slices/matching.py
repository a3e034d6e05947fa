"""Which stored slice is which wanted one, and how new ones are named.

``ByIndex`` is Kubernetes 1.36's way and the default: the slice's number stands in front of its name, as hexadecimal
digits. ``ByDeviceNames`` is that of 1.35 and before: slices are the same when they hold the same devices. Under either,
slices of the other are not recognised, and the plan replaces them once. Choose the old one only beside a driver of
another make that still publishes the same pools by it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from driver.slices.model import Owner, Slice
from driver.slices.stored import Stored
from node.values import Value, value

_LEAST_DIGITS: Final = 5
_HEXADECIMAL: Final = re.compile("[0-9a-fA-F]+")

_MISSING: Final = 16
"""Slices of a layout that may be missing, beside as many as are there.

A number in a name, which anybody can write, decides how long a layout gets; and where most slices are missing all of
them are written anew.
"""

BEYOND: Final = -1
"""The index of a stored slice that this layout knows and nobody wants any more."""


class Matching(Protocol):
    """A layout of slices in the API."""

    def match(self, stored: Sequence[Stored], wanted: Sequence[Slice]) -> Mapping[str, int]:
        """By the name of each stored slice the index of the wanted one that it may be, or ``BEYOND``.

        Slices that are not of this layout are left out. Several may have one index.
        """
        ...

    def generate_name(self, index: int, count: int, driver: str, owner: Owner | None) -> str:
        """``generateName`` for a new slice, one of ``count``. The server keeps 58 characters of it and adds five."""
        ...

    def layout(self, stored: Sequence[Stored]) -> tuple[tuple[str, ...], ...]:
        """The names of the devices by index of slice; no names where a slice is missing."""
        ...


@value
class ByIndex(Value):
    """Names such as ``00003-driver.example.com-node-x7k2p``: the number has five digits, more in very large pools."""

    def match(self, stored: Sequence[Stored], wanted: Sequence[Slice]) -> Mapping[str, int]:
        """See ``Matching``."""
        digits = _digits(len(wanted))
        found = {each.name: _index(each.name, digits) for each in stored}
        return {name: index if index < len(wanted) else BEYOND for name, index in found.items() if index is not None}

    def generate_name(self, index: int, count: int, driver: str, owner: Owner | None) -> str:
        """See ``Matching``."""
        rest = f"{driver}-{owner.name}-" if owner is not None else f"{driver}-"
        return f"{index:0{_digits(count)}x}-{rest}"

    def layout(self, stored: Sequence[Stored]) -> tuple[tuple[str, ...], ...]:
        """See ``Matching``."""
        by_index: dict[int, tuple[str, ...]] = {}
        newest = _newest(stored)
        for each in newest:
            index = _index(each.name, max(each.name.find("-"), _LEAST_DIGITS))
            if index is not None and index < 2 * len(newest) + _MISSING:
                by_index.setdefault(index, each.device_names)
        return tuple([by_index.get(index, ()) for index in range(max(by_index, default=-1) + 1)])


@value
class ByDeviceNames(Value):
    """Names such as ``node-driver.example.com-x7k2p``; a pool of one slice is that slice, whatever it holds."""

    def match(self, stored: Sequence[Stored], wanted: Sequence[Slice]) -> Mapping[str, int]:
        """See ``Matching``."""
        if len(stored) == 1 and len(wanted) == 1:
            return {stored[0].name: 0}
        free: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for index, slice_ in enumerate(wanted):
            free[frozenset(slice_.names)].append(index)
        found: dict[str, int] = {}
        for each in sorted(stored, key=lambda old: (-old.generation, old.name)):
            indexes = free.get(frozenset(each.device_names))
            if indexes:
                found[each.name] = indexes.pop(0)
        return found

    def generate_name(self, index: int, count: int, driver: str, owner: Owner | None) -> str:
        """See ``Matching``."""
        return f"{owner.name}-{driver}-" if owner is not None else f"{driver}-"

    def layout(self, stored: Sequence[Stored]) -> tuple[tuple[str, ...], ...]:
        """See ``Matching``."""
        return tuple([each.device_names for each in sorted(_newest(stored), key=lambda old: old.name)])


def _digits(count: int) -> int:
    return max(_LEAST_DIGITS, len(f"{max(count - 1, 0):x}"))


def _index(name: str, digits: int) -> int | None:
    prefix, dash, _ = name.partition("-")
    if not dash or len(prefix) != digits or not _HEXADECIMAL.fullmatch(prefix):
        return None
    return int(prefix, 16)


def _newest(stored: Sequence[Stored]) -> list[Stored]:
    highest = max([each.generation for each in stored], default=0)
    return sorted([each for each in stored if each.generation == highest], key=lambda old: old.name)
