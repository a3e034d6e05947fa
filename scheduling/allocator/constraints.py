"""Constraints between the devices of a claim, and the attributes that they compare.

A constraint is a pure step: from the state that the devices so far have made of it and one more device to the next
state, or to a refusal. So a search goes back by going back to an earlier state, and equal states mean equal futures.

Names in constraints are full (`domain/id`). A device may leave its driver's domain out. A value is one of four types,
or, where list attributes are on, a list of one of them; then a plain value counts as a list of one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple, Protocol

from scheduling.allocator.claims import Claim, ConstraintFacts, DeviceRequest
from scheduling.allocator.reading import FatalError, Object
from scheduling.allocator.slices import SliceDevice

_SCALARS = ("string", "int", "bool", "version")
_LISTS = (("ints", "int"), ("bools", "bool"), ("strings", "string"), ("versions", "version"))


class AttributeValues(NamedTuple):
    """Values of one type. Versions compare as they are written."""

    type: str
    values: frozenset[str | int | bool]

    def shared_with(self, other: AttributeValues) -> AttributeValues | None:
        """What both have; None if nothing, as always between different types."""
        if self.type != other.type:
            return None
        common = self.values & other.values
        return AttributeValues(self.type, common) if common else None


def lookup(device: SliceDevice, name: str) -> Object | None:
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


def as_values(attribute: Object) -> AttributeValues | None:
    """The value or values as a set; None for an attribute without any."""
    for plural, kind in _LISTS:
        listed = attribute.get(plural)
        if listed:
            return AttributeValues(kind, frozenset(listed))
    for kind in ("int", "bool", "string", "version"):
        value = attribute.get(kind)
        if value is not None:
            return AttributeValues(kind, frozenset((value,)))
    return None


State = Hashable
START: Final[State] = None
"""The state before the first device, for every constraint."""


class Refused:
    """The answer of a constraint that does not allow a device."""


REFUSED: Final = Refused()

WITHOUT_VALUE: Final = ("", "")
"""In states, an attribute without a plain value."""


class Constraint(Protocol):
    """One constraint of one claim."""

    facts: ConstraintFacts
    attribute: str

    def add(self, state: State, device: SliceDevice) -> State | Refused:
        """The state with this device as well, or `REFUSED`."""

    def values(self, device: SliceDevice) -> Iterable[Hashable]:
        """What the device can have in common with others; without a value it is alone."""

    def held(self, state: State) -> Iterable[Hashable]:
        """The values in a state: a device that follows must have one of them (match), or none (distinct)."""


class _OnAttribute:
    """What a constraint is about."""

    def __init__(self, facts: ConstraintFacts, attribute: str) -> None:
        self.facts = facts
        self.attribute = attribute


class _Plain(_OnAttribute):
    """While list attributes are off: an attribute has one value or none."""

    def values(self, device: SliceDevice) -> Iterable[Hashable]:
        attribute = lookup(device, self.attribute)
        if attribute is None:
            return ()
        value = scalar(attribute)
        return (("alone", device.id) if value is None else value,)


class _Lists(_OnAttribute):
    """With list attributes: a plain value is a list of one."""

    def listed(self, device: SliceDevice) -> AttributeValues | None:
        """The device's values, None without any."""
        attribute = lookup(device, self.attribute)
        return None if attribute is None else as_values(attribute)

    def values(self, device: SliceDevice) -> Iterable[Hashable]:
        values = self.listed(device)
        return () if values is None else ((values.type, each) for each in values.values)


class _MatchScalars(_Plain):
    """matchAttribute while list attributes are off: every device has the first one's value.

    The state is the first device's attribute: its type and value, or that it has none of a known type. A first device
    is accepted with any attribute; then none can follow.
    """

    def add(self, state: State, device: SliceDevice) -> State | Refused:
        attribute = lookup(device, self.attribute)
        if attribute is None:
            return REFUSED
        value = scalar(attribute)
        if state is START:
            return value if value is not None else WITHOUT_VALUE
        return state if value is not None and value == state else REFUSED

    def held(self, state: State) -> Iterable[Hashable]:
        return (state,)


class _MatchLists(_Lists):
    """matchAttribute with list attributes: all devices share at least one value. The state is what they share."""

    def add(self, state: State, device: SliceDevice) -> State | Refused:
        values = self.listed(device)
        if values is None:
            return REFUSED
        if not isinstance(state, AttributeValues):
            return values
        shared = state.shared_with(values)
        return REFUSED if shared is None else shared

    def held(self, state: State) -> Iterable[Hashable]:
        return ((state.type, each) for each in state.values) if isinstance(state, AttributeValues) else ()


class _Distinct:
    """distinctAttribute: the state is the set of values so far."""

    def held(self, state: State) -> Iterable[Hashable]:
        return state if isinstance(state, frozenset) else ()


class _DistinctScalars(_Distinct, _Plain):
    """distinctAttribute while list attributes are off: no two devices have the same value.

    A device whose attribute has no plain value can only be the first. The state is the set of values so far.
    """

    def add(self, state: State, device: SliceDevice) -> State | Refused:
        attribute = lookup(device, self.attribute)
        if attribute is None:
            return REFUSED
        value = scalar(attribute)
        seen = state if isinstance(state, frozenset) else frozenset()
        if seen and (value is None or value in seen):
            return REFUSED
        return seen | {value if value is not None else WITHOUT_VALUE}


class _DistinctLists(_Distinct, _Lists):
    """distinctAttribute with list attributes: no two devices share a value. The state is all values so far."""

    def add(self, state: State, device: SliceDevice) -> State | Refused:
        values = self.listed(device)
        if values is None:
            return REFUSED
        seen = state if isinstance(state, frozenset) else frozenset()
        own = {(values.type, value) for value in values.values}
        return REFUSED if seen & own else seen | own


def constraints_of(claim: Claim, list_attributes: bool) -> tuple[Constraint, ...]:
    """The constraints of a claim. Raises `FatalError` for one of a kind that is not known."""
    made: list[Constraint] = []
    for index, facts in enumerate(claim.constraints):
        if facts.match_attribute is not None:
            made.append((_MatchLists if list_attributes else _MatchScalars)(facts, facts.match_attribute))
        elif facts.distinct_attribute is not None:
            made.append((_DistinctLists if list_attributes else _DistinctScalars)(facts, facts.distinct_attribute))
        else:
            path = f"spec.devices.constraints[{index}]"
            raise FatalError(claim.reference, path, "neither matchAttribute nor distinctAttribute is set")
    return tuple(made)


def covering(constraints: tuple[Constraint, ...], request: DeviceRequest) -> tuple[int, ...]:
    """Which of the constraints are about devices of this request, by position."""
    return tuple(index for index, each in enumerate(constraints) if each.facts.covers(request))
