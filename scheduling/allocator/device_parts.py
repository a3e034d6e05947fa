"""The parts of a device in a slice: capacities, consumed counters, taints, the choice of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from scheduling.allocator import reading
from scheduling.allocator.errors import FatalError, ObjectReference
from scheduling.allocator.node_selection import Matcher, SelectorFault, node_matcher
from scheduling.allocator.reading import Object
from scheduling.api.quantities import Quantity


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
        self.all_nodes = part.get("allNodes") is not None and reading.boolean(
            owner, part, "allNodes", f"{path}.allNodes"
        )
        if self.name is not None and not isinstance(self.name, str):
            raise reading.wrong(owner, f"{path}.nodeName", self.name, "a string")
        if self.selector is not None and not isinstance(self.selector, Mapping):
            raise reading.wrong(owner, f"{path}.nodeSelector", self.selector, "an object")

    @cached_property
    def matcher(self) -> Matcher | None:
        """The test for a node; None if nothing is chosen. Raises `FatalError` for a selector that cannot be read."""
        try:
            return node_matcher(self.name or "", self.all_nodes, self.selector)
        except SelectorFault as fault:
            raise FatalError(self._owner, f"{self._path}.nodeSelector.{fault.path}", fault.message) from fault


_TYPES = {"string": str, "version": str, "int": int, "bool": bool}
_PLURALS = {"strings": str, "versions": str, "ints": int, "bools": bool}


def are_plain(attributes: object) -> bool:
    """Whether attributes are single values of their types, as nearly all are: a quick look."""
    if type(attributes) is not dict:
        return False
    for attribute in attributes.values():
        if type(attribute) is not dict:
            return False
        for kind, value in attribute.items():
            if type(value) is not _TYPES.get(kind):
                return False
    return True


def read_attributes(owner: ObjectReference, device: Object, path: str) -> Mapping[str, Object]:
    """The `attributes` of a device: name -> typed value. Fields of types that nobody knows are let through."""
    attributes = reading.named(owner, device, "attributes", f"{path}.attributes")
    for name, attribute in attributes.items():
        for kind, value in attribute.items():
            many = _PLURALS.get(kind)
            if value is None or (many is None and kind not in _TYPES):
                continue
            known = _TYPES[kind] if many is None else many
            values = (value,) if many is None else value
            if not isinstance(values, list | tuple) or not all(type(each) is known for each in values):
                wanted = f"a value of type {kind}" if many is None else f"a list of values of type {known.__name__}"
                raise reading.wrong(owner, f"{path}.attributes[{name}].{kind}", value, wanted)
    return attributes


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
    for counter, value in reading.named(owner, entry, "counters", f"{path}.counters").items():
        field = f"{path}.counters[{counter}].value"
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
    for name, entry in reading.named(owner, device, "capacity", f"{path}.capacity").items():
        field = f"{path}.capacity[{name}]"
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
        raise reading.wrong(owner, f"{path}.validValues", values, "a list of quantities")
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
