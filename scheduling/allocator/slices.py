"""ResourceSlices and their devices as the allocator reads them, and the names of pools and devices.

A slice is read in two steps: the fields that place it at once, its devices when a pool that it belongs to is looked
at, so that nonsense in one device harms nobody who does not meet it. All values are facts, computed once and shared by
every allocation of one allocator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from scheduling.allocator.capacity import DeviceCapacity, read_capacity
from scheduling.allocator.node_selection import Labels, Matcher, SelectorFault, node_matcher
from scheduling.allocator.reading import FatalError, Object, Part
from scheduling.cel.device import CelDevice


class PoolID(NamedTuple):
    """A pool: its name is unique only together with its driver's."""

    driver: str
    pool: str

    def __str__(self) -> str:
        """`driver/pool`."""
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """A device: its name is unique in its pool."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        """`driver/pool/device`."""
        return f"{self.driver}/{self.pool}/{self.device}"


class SharedDeviceID(NamedTuple):
    """One share of a device that allows several allocations."""

    device: DeviceID
    share: str

    def __str__(self) -> str:
        """`driver/pool/device/share`."""
        return f"{self.device}/{self.share}"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a device; only the effects NoSchedule and NoExecute keep claims away."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a device takes of one counter set: counter -> nano-units."""

    counter_set: str
    counters: Mapping[str, int]


class NodeChoice:
    """The fields of a slice or of a device that choose nodes."""

    def __init__(self, part: Part) -> None:
        """`part` is the slice's spec or a device."""
        self._part = part
        self.name: str | None = part.object.get("nodeName")
        self.selector: Object | None = part.object.get("nodeSelector")
        self.all_nodes = part.boolean("allNodes")
        if self.name is not None and not isinstance(self.name, str):
            raise part.wrong("nodeName", self.name, "a string")
        if self.selector is not None and not isinstance(self.selector, Mapping):
            raise part.wrong("nodeSelector", self.selector, "an object")

    @cached_property
    def matcher(self) -> Matcher | None:
        """The test for a node; None if nothing is chosen. Raises `FatalError` for a selector that cannot be read."""
        try:
            return node_matcher(self.name or "", self.all_nodes, self.selector)
        except SelectorFault as fault:
            path = self._part.at(f"nodeSelector.{fault.path}")
            raise FatalError(self._part.owner, path, fault.message) from fault


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


def read_attributes(device: Part) -> Mapping[str, Object]:
    """The `attributes` of a device: name -> typed value. Fields of unknown types pass."""
    attributes = device.mapping("attributes")
    if are_plain(attributes) and all(type(name) is str for name in attributes):
        return attributes
    for entry in device.named("attributes").values():
        for kind, value in entry.object.items():
            many = _PLURALS.get(kind)
            if value is None or (many is None and kind not in _TYPES):
                continue
            known = _TYPES[kind] if many is None else many
            values = (value,) if many is None else value
            if not isinstance(values, list | tuple) or not all(type(each) is known for each in values):
                wanted = f"a value of type {kind}" if many is None else f"a list of values of type {known.__name__}"
                raise entry.wrong(kind, value, wanted)
    return attributes


def read_counters(entry: Part, name: str = "counterSet") -> tuple[str, Mapping[str, int]]:
    """A counter set, or the use of one: its name (in the field `name`), counter -> nano-units."""
    counters = {counter: each.quantity("value").nanos for counter, each in entry.named("counters").items()}
    return entry.string(name), counters


class ResourceSlice:
    """One ResourceSlice (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read what places the slice; devices and counters follow when asked for."""
        whole = Part.whole("ResourceSlice", obj)
        self.reference = whole.owner
        self.name = self.reference.name
        spec = self._spec = whole.part("spec")
        pool = spec.part("pool")
        self.pool = PoolID(spec.string("driver"), pool.string("name"))
        self.generation = pool.integer("generation")
        self.slice_count = pool.integer("resourceSliceCount")
        per_device = spec.boolean("perDeviceNodeSelection")
        self.per_device = per_device if spec.has("perDeviceNodeSelection") else None
        self.has_counters = bool(spec.object.get("sharedCounters"))
        self.nodes = NodeChoice(spec)

    @cached_property
    def devices(self) -> tuple[SliceDevice, ...]:
        """The devices, in the slice's order."""
        return tuple(SliceDevice(self, part) for part in self._spec.parts("devices"))

    @cached_property
    def counter_sets(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        """The shared counters: name of the set, counter -> nano-units."""
        return tuple(read_counters(entry, "name") for entry in self._spec.parts("sharedCounters"))

    @cached_property
    def has_compatibility_groups(self) -> bool:
        """Whether a device says with which others it may share counters (an alpha feature that is off)."""
        return any(
            entry.object.get("compatibilityGroups")
            for device in self._spec.parts("devices")
            for entry in device.parts("consumesCounters")
        )

    def selects(self, node: str, labels: Labels) -> bool:
        """Whether the slice, or at least one of its devices, is for this node. A slice that chooses nothing is not."""
        matcher = self.nodes.matcher
        if matcher is not None:
            return matcher(node, labels)
        return self.per_device is True and any(device.selects(node, labels) for device in self.devices)


class SliceDevice:
    """One device of a slice."""

    def __init__(self, owner: ResourceSlice, part: Part) -> None:
        """Read name and flags; the rest follows when asked for."""
        self.slice = owner
        self.path = part.path
        self._part = part
        self.name = part.string("name")
        self.id = DeviceID(owner.pool.driver, owner.pool.pool, self.name)
        self.allows_multiple = part.boolean("allowMultipleAllocations")
        self.binds_to_node = part.boolean("bindsToNode")
        self.binding_conditions = self._conditions("bindingConditions")
        self.binding_failure_conditions = self._conditions("bindingFailureConditions")
        self.nodes = NodeChoice(part)

    def __repr__(self) -> str:
        return f"Device({self.id})"

    @cached_property
    def attributes(self) -> Mapping[str, Object]:
        """Attribute name, as written in the slice -> its typed value, as in the API."""
        return read_attributes(self._part)

    @cached_property
    def capacity(self) -> Mapping[str, DeviceCapacity]:
        """Capacity name, as written in the slice -> capacity."""
        return read_capacity(self._part)

    @cached_property
    def consumes(self) -> tuple[Consumption, ...]:
        """What the device takes of its pool's shared counters."""
        return tuple(Consumption(*read_counters(each)) for each in self._part.parts("consumesCounters"))

    @cached_property
    def consumed(self) -> Mapping[tuple[str, str], int]:
        """The same, added up: (counter set, counter) -> nano-units."""
        if not self._part.has("consumesCounters"):
            return {}
        total: dict[tuple[str, str], int] = {}
        for consumption in self.consumes:
            for counter, amount in consumption.counters.items():
                key = (consumption.counter_set, counter)
                total[key] = total.get(key, 0) + amount
        return total

    @cached_property
    def taints(self) -> tuple[Taint, ...]:
        """The taints, in the slice's order."""
        return tuple(
            Taint(each.string("key"), each.string("value"), each.string("effect"))
            for each in self._part.parts("taints")
        )

    @cached_property
    def cel(self) -> CelDevice:
        """What `device` is in a selector. Raises `InvalidObject` for attributes that are not of their types."""
        if not are_plain(self._part.object.get("attributes")):
            self.attributes  # noqa: B018 - raises
        return CelDevice(self.slice.pool.driver, self._part.object)

    def _conditions(self, field: str) -> Sequence[str] | None:
        return self._part.strings(field) if self._part.has(field) else None

    def raw(self, field: str) -> Object:
        """An object field of the device, as the slice has it."""
        return self._part.mapping(field)

    def selects(self, node: str, labels: Labels) -> bool:
        """Whether the device's own choice of nodes has this one (with perDeviceNodeSelection)."""
        matcher = self.nodes.matcher
        return matcher is not None and matcher(node, labels)
