"""The parts of a device in a slice: capacities, consumed counters, taints, the choice of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from driver.quantity import Quantity
from driver.structured import reading
from driver.structured.errors import FatalError, InvalidObject, ObjectReference
from driver.structured.node_selection import Matcher, SelectorFault, node_matcher
from driver.structured.reading import Object


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a device; only the effects NoSchedule and NoExecute keep claims away."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Range:
    """Amounts from `minimum` to `maximum`, in steps from the minimum."""

    minimum: Quantity | None
    maximum: Quantity | None
    step: Quantity | None


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How requests for a capacity are rounded and limited; a range goes before values."""

    default: Quantity | None
    range: Range | None
    values: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device."""

    value: Quantity
    policy: RequestPolicy | None


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a device takes of one counter set: counter -> nano-units."""

    counter_set: str
    counters: Mapping[str, int]


class NodeChoice:
    """The fields of a slice or of a device that choose nodes."""

    def __init__(self, owner: ObjectReference, part: Object, path: str) -> None:
        """`part` is the slice's spec or a device, found at `path` in `owner`."""
        self._owner = owner
        self._path = path
        self.name: str | None = part.get("nodeName")
        self.selector: Object | None = part.get("nodeSelector")
        self.all_nodes = part.get("allNodes") is True
        if self.name is not None and not isinstance(self.name, str):
            raise InvalidObject(owner, f"{path}.nodeName", f"{self.name!r} is not a string")
        if self.selector is not None and not isinstance(self.selector, Mapping):
            raise InvalidObject(owner, f"{path}.nodeSelector", f"{self.selector!r} is not an object")

    @cached_property
    def matcher(self) -> Matcher | None:
        """The test for a node; None if nothing is chosen. Raises `FatalError` for a selector that cannot be read."""
        try:
            return node_matcher(self.name or "", self.all_nodes, self.selector)
        except SelectorFault as fault:
            raise FatalError(self._owner, f"{self._path}.nodeSelector.{fault.path}", fault.message) from fault


def read_taints(owner: ObjectReference, device: Object, path: str) -> tuple[Taint, ...]:
    """The `taints` of a device."""
    return tuple(
        Taint(
            reading.string(owner, entry, "key", f"{path}.taints[{index}].key"),
            reading.string(owner, entry, "value", f"{path}.taints[{index}].value"),
            reading.string(owner, entry, "effect", f"{path}.taints[{index}].effect"),
        )
        for index, entry in enumerate(reading.objects(owner, device, "taints", f"{path}.taints"))
    )


def read_counters(
    owner: ObjectReference, entry: Object, path: str, name: str = "counterSet"
) -> tuple[str, Mapping[str, int]]:
    """A counter set, or the use of one: its name (in the field `name`), counter -> nano-units."""
    counters = {}
    for counter, value in reading.mapping(owner, entry, "counters", f"{path}.counters").items():
        field = f"{path}.counters[{counter}].value"
        if not isinstance(value, Mapping):
            raise InvalidObject(owner, field, f"{value!r} is not an object with a value")
        counters[counter] = reading.quantity(owner, value.get("value"), field).nanos
    return reading.string(owner, entry, name, f"{path}.{name}"), counters


def read_consumption(owner: ObjectReference, device: Object, path: str) -> tuple[Consumption, ...]:
    """The `consumesCounters` of a device."""
    field = f"{path}.consumesCounters"
    return tuple(
        Consumption(*read_counters(owner, entry, f"{field}[{index}]"))
        for index, entry in enumerate(reading.objects(owner, device, "consumesCounters", field))
    )


def read_capacity(owner: ObjectReference, device: Object, path: str) -> Mapping[str, Capacity]:
    """The `capacity` of a device."""
    capacities = {}
    for name, entry in reading.mapping(owner, device, "capacity", f"{path}.capacity").items():
        field = f"{path}.capacity[{name}]"
        if not isinstance(entry, Mapping):
            raise InvalidObject(owner, field, f'{entry!r} is not an object like {{value: "80Gi"}}')
        value = reading.quantity(owner, entry.get("value"), f"{field}.value")
        policy = entry.get("requestPolicy")
        capacities[name] = Capacity(value, None if policy is None else _policy(owner, entry, field))
    return capacities


def _policy(owner: ObjectReference, capacity: Object, path: str) -> RequestPolicy:
    policy = reading.mapping(owner, capacity, "requestPolicy", f"{path}.requestPolicy")
    path = f"{path}.requestPolicy"
    limits = policy.get("validRange")
    values = policy.get("validValues") or ()
    if not isinstance(values, list | tuple):
        raise InvalidObject(owner, f"{path}.validValues", f"{values!r} is not a list of quantities")
    return RequestPolicy(
        default=_optional(owner, policy, "default", path),
        range=None if limits is None else _range(owner, policy, path),
        values=tuple(reading.quantity(owner, each, f"{path}.validValues[{i}]") for i, each in enumerate(values)),
    )


def _range(owner: ObjectReference, policy: Object, path: str) -> Range:
    limits = reading.mapping(owner, policy, "validRange", f"{path}.validRange")
    path = f"{path}.validRange"
    return Range(*(_optional(owner, limits, name, path) for name in ("min", "max", "step")))


def _optional(owner: ObjectReference, parent: Object, name: str, path: str) -> Quantity | None:
    value = parent.get(name)
    return None if value is None else reading.quantity(owner, value, f"{path}.{name}")
