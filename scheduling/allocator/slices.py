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

from scheduling.allocator import reading
from scheduling.allocator.capacity import DeviceCapacity, read_capacity
from scheduling.allocator.node_selection import Labels, Matcher, SelectorFault, node_matcher
from scheduling.allocator.reading import FatalError, Object, ObjectReference
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


class Slice:
    """One ResourceSlice (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read what places the slice; devices and counters follow when asked for."""
        self.object = obj
        self.reference = owner = reading.reference("ResourceSlice", obj)
        spec = self._spec = reading.mapping(owner, obj, "spec", "spec")
        pool = reading.mapping(owner, spec, "pool", "spec.pool")
        driver = reading.string(owner, spec, "driver", "spec.driver")
        self.name = owner.name
        self.pool = PoolID(driver, reading.string(owner, pool, "name", "spec.pool.name"))
        self.generation = reading.integer(owner, pool, "generation", "spec.pool.generation")
        self.slice_count = reading.integer(owner, pool, "resourceSliceCount", "spec.pool.resourceSliceCount")
        self.per_device: bool | None = None
        if spec.get("perDeviceNodeSelection") is not None:
            self.per_device = reading.boolean(owner, spec, "perDeviceNodeSelection", "spec.perDeviceNodeSelection")
        self.has_counters = bool(spec.get("sharedCounters"))
        self.nodes = NodeChoice(owner, spec, "spec")

    @cached_property
    def devices(self) -> tuple[SliceDevice, ...]:
        """The devices, in the slice's order."""
        entries = reading.objects(self.reference, self._spec, "devices", "spec.devices")
        return tuple(SliceDevice(self, index, entry) for index, entry in enumerate(entries))

    @cached_property
    def counter_sets(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        """The shared counters: name of the set, counter -> nano-units."""
        path = "spec.sharedCounters"
        return tuple(
            read_counters(self.reference, entry, f"{path}[{index}]", "name")
            for index, entry in enumerate(reading.objects(self.reference, self._spec, "sharedCounters", path))
        )

    @cached_property
    def has_compatibility_groups(self) -> bool:
        """Whether a device says with which others it may share counters (an alpha feature that is off)."""
        for index, device in enumerate(reading.objects(self.reference, self._spec, "devices", "spec.devices")):
            path = f"spec.devices[{index}].consumesCounters"
            for entry in reading.objects(self.reference, device, "consumesCounters", path):
                if entry.get("compatibilityGroups"):
                    return True
        return False

    def selects(self, node: str, labels: Labels) -> bool:
        """Whether the slice, or at least one of its devices, is for this node. A slice that chooses nothing is not."""
        matcher = self.nodes.matcher
        if matcher is not None:
            return matcher(node, labels)
        return self.per_device is True and any(device.selects(node, labels) for device in self.devices)


class SliceDevice:
    """One device of a slice."""

    def __init__(self, owner: Slice, index: int, entry: Object) -> None:
        """Read name and flags; the rest follows when asked for."""
        self.slice = owner
        self.index = index
        self.path = f"spec.devices[{index}]"
        self._entry = entry
        reference = owner.reference
        self.name = reading.string(reference, entry, "name", f"{self.path}.name")
        self.id = DeviceID(owner.pool.driver, owner.pool.pool, self.name)
        self.allows_multiple = reading.boolean(
            reference, entry, "allowMultipleAllocations", f"{self.path}.allowMultipleAllocations"
        )
        self.binds_to_node = reading.boolean(reference, entry, "bindsToNode", f"{self.path}.bindsToNode")
        self.binding_conditions = self._conditions("bindingConditions")
        self.binding_failure_conditions = self._conditions("bindingFailureConditions")
        self.nodes = NodeChoice(reference, entry, self.path)

    def __repr__(self) -> str:
        return f"Device({self.id})"

    @cached_property
    def attributes(self) -> Mapping[str, Object]:
        """Attribute name, as written in the slice -> its typed value, as in the API."""
        return read_attributes(self.slice.reference, self._entry, self.path)

    @cached_property
    def capacity(self) -> Mapping[str, DeviceCapacity]:
        """Capacity name, as written in the slice -> capacity."""
        return read_capacity(self.slice.reference, self._entry, self.path)

    @cached_property
    def consumes(self) -> tuple[Consumption, ...]:
        """What the device takes of its pool's shared counters."""
        return read_consumption(self.slice.reference, self._entry, self.path)

    @cached_property
    def consumed(self) -> Mapping[tuple[str, str], int]:
        """The same, added up: (counter set, counter) -> nano-units."""
        total: dict[tuple[str, str], int] = {}
        for consumption in self.consumes:
            for counter, amount in consumption.counters.items():
                key = (consumption.counter_set, counter)
                total[key] = total.get(key, 0) + amount
        return total

    @cached_property
    def taints(self) -> tuple[Taint, ...]:
        """The taints, in the slice's order."""
        return read_taints(self.slice.reference, self._entry, self.path)

    @cached_property
    def cel(self) -> CelDevice:
        """What `device` is in a selector. Raises `InvalidObject` for attributes that are not of their types."""
        if not are_plain(self._entry.get("attributes")):
            self.attributes  # noqa: B018 - raises
        return CelDevice(self.slice.pool.driver, self._entry)

    def _conditions(self, field: str) -> Sequence[str] | None:
        if self._entry.get(field) is None:
            return None
        return reading.strings(self.slice.reference, self._entry, field, f"{self.path}.{field}")

    def raw(self, field: str) -> Object:
        """A field of the device that is an object, as it stands in the slice."""
        return reading.mapping(self.slice.reference, self._entry, field, f"{self.path}.{field}")

    def selects(self, node: str, labels: Labels) -> bool:
        """Whether the device's own choice of nodes has this one (with perDeviceNodeSelection)."""
        matcher = self.nodes.matcher
        return matcher is not None and matcher(node, labels)
