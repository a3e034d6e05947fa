"""Attributes of devices as constraints see them.

Names in constraints are full (`domain/id`). A device may leave its driver's domain out. A value is one of four types,
or, where list attributes are on, a list of one of them; then a plain value counts as a list of one.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduling.allocator.reading import Object
from scheduling.allocator.slices import Device

_SCALARS = ("string", "int", "bool", "version")
_LISTS = (("ints", "int"), ("bools", "bool"), ("strings", "string"), ("versions", "version"))


class Values(NamedTuple):
    """Values of one type. Versions compare as they are written."""

    type: str
    values: frozenset[str | int | bool]

    def shared_with(self, other: Values) -> Values | None:
        """What both have; None if nothing, as always between different types."""
        if self.type != other.type:
            return None
        common = self.values & other.values
        return Values(self.type, common) if common else None


def lookup(device: Device, name: str) -> Object | None:
    """The attribute of that full name; None if the device has none."""
    attribute = device.attributes.get(name)
    if attribute is not None:
        return attribute
    domain, slash, identifier = name.partition("/")
    if not slash or domain != device.id.driver:
        return None
    return device.attributes.get(identifier)


def scalar(attribute: Object) -> tuple[str, str | int | bool] | None:
    """The single value, with its type; None for an attribute without one (a list, or nothing known)."""
    for kind in _SCALARS:
        value = attribute.get(kind)
        if value is not None:
            return kind, value
    return None


def as_values(attribute: Object) -> Values | None:
    """The value or values as a set; None for an attribute without any."""
    for plural, kind in _LISTS:
        listed = attribute.get(plural)
        if listed:
            return Values(kind, frozenset(listed))
    for kind in ("int", "bool", "string", "version"):
        value = attribute.get(kind)
        if value is not None:
            return Values(kind, frozenset((value,)))
    return None
