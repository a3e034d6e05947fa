"""ResourceSlices as the allocator reads them.

A slice is read in two steps: what decides whether it matters for a node at once, its devices when a pool that it
belongs to is looked at, so that nonsense in one device harms nobody who does not meet it. All are facts, computed once
and shared by every allocation of one allocator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from scheduling.allocator import reading
from scheduling.allocator.device_parts import (
    Capacity,
    Consumption,
    NodeChoice,
    Taint,
    are_plain,
    read_attributes,
    read_capacity,
    read_consumption,
    read_counters,
    read_taints,
)
from scheduling.allocator.identity import DeviceID, PoolID
from scheduling.allocator.node_selection import Labels
from scheduling.allocator.reading import Object
from scheduling.cel.device import Device as CelDevice


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
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the slice's order."""
        entries = reading.objects(self.reference, self._spec, "devices", "spec.devices")
        return tuple(Device(self, index, entry) for index, entry in enumerate(entries))

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


class Device:
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
    def capacity(self) -> Mapping[str, Capacity]:
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
