"""Shares equal attributes between the devices of a node, and gives each name once.

Most attributes are equal on all devices of a node, and nearly all from one scan to the next. A node of 300 NICs or
1,000 MIG devices would otherwise hold tens of thousands of equal objects, and make and compare them at every scan;
comparing attributes that are the same object costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from node.inventory.model import Attribute, AttributeValue, Capacity, sorted_capacity

Pairs = list[tuple[str, AttributeValue | None]]
"""Names and values of attributes in any order; None and an empty text mean unknown."""

_KEPT = 1 << 13
"""More than the different ones of a large node; further ones are made each time, and are equally right."""


class AttributePool:
    """Makes attribute and capacity tuples whose equal members are the same objects."""

    def __init__(self) -> None:
        self._capacities: dict[tuple[Capacity, ...], tuple[Capacity, ...]] = {}

    def attributes(self, pairs: Iterable[tuple[str, AttributeValue | None]]) -> tuple[Attribute, ...]:
        """Sorted attributes without unknown ones."""
        known = [(name, value) for name, value in pairs if value is not None and value != ""]
        known.sort(key=_name)
        return tuple([_shared(name, value) for name, value in known])

    def capacity(self, pairs: Iterable[tuple[str, int | None]]) -> tuple[Capacity, ...]:
        """Sorted capacities without unknown ones."""
        made = sorted_capacity(pairs)
        return self._capacities.setdefault(made, made)


def _name(pair: tuple[str, AttributeValue]) -> str:
    return pair[0]


# Typed: True and 1 are equal, and yet different attributes.
@lru_cache(maxsize=_KEPT, typed=True)
def _shared(name: str, value: AttributeValue) -> Attribute:
    return Attribute(name, value)


class DeviceNames:
    """The names given so far; ``numbered``: whether one of them had to be numbered."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self.numbered = False

    def reserve(self, names: Collection[str]) -> bool:
        """Give these names; False, and none of them is given, if one is given already."""
        if not self._given.isdisjoint(names):
            return False
        self._given.update(names)
        return True

    def unique(self, name: str) -> str:
        """The name; numbered (``-n2``) where it is given already."""
        chosen, number = name, 2
        while chosen in self._given:
            chosen, number, self.numbered = f"{name}-n{number}", number + 1, True
        self._given.add(chosen)
        return chosen
