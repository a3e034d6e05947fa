"""Which feature gates explain that a slice came back with less than was sent.

A guess from counts: a gate that is off takes whole fields away, it changes none. The server sends no word about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kube.bodies import Json, JsonObject, object_at

Spec = JsonObject
Test = Callable[[Spec, Spec], bool]


def disabled_features(desired: JsonObject, actual: JsonObject) -> tuple[str, ...]:
    """The gates, by upstream's names, whose fields are in the ``desired`` object and not in the ``actual`` one."""
    wanted, stored = object_at(desired, "spec"), object_at(actual, "spec")
    return tuple([gate for gate, lost in _GATES if lost(wanted, stored)])


def _size(part: Json, field: str) -> int:
    found = part.get(field) if isinstance(part, dict) else None
    return len(found) if isinstance(found, list | dict | str) else 0


def _pairs(wanted: JsonObject, stored: JsonObject, field: str) -> Iterator[tuple[Any, Any]]:
    ours, theirs = wanted.get(field), stored.get(field)
    if isinstance(ours, list) and isinstance(theirs, list):
        yield from zip(ours, theirs, strict=False)


def _fewer(field: str) -> Test:
    """Some device has fewer entries in a field."""
    return lambda wanted, stored: any(
        _size(ours, field) > _size(theirs, field) for ours, theirs in _pairs(wanted, stored, "devices")
    )


def _unset(field: str) -> Test:
    """Some device has a field no more."""
    return lambda wanted, stored: any(
        ours.get(field) is not None and theirs.get(field) is None
        for ours, theirs in _pairs(wanted, stored, "devices")
        if isinstance(ours, dict) and isinstance(theirs, dict)
    )


def _partitions(wanted: Spec, stored: Spec) -> bool:
    per_device = bool(wanted.get("perDeviceNodeSelection")) and not stored.get("perDeviceNodeSelection")
    sets = _size(wanted, "sharedCounters") > _size(stored, "sharedCounters")
    return per_device or sets or _fewer("consumesCounters")(wanted, stored)


def _bindings(wanted: Spec, stored: Spec) -> bool:
    fields = ("bindingConditions", "bindingFailureConditions")
    return any(_fewer(field)(wanted, stored) for field in fields) or _unset("bindsToNode")(wanted, stored)


def _lists(wanted: Spec, stored: Spec) -> bool:
    for ours, theirs in _pairs(wanted, stored, "devices"):
        facts = object_at(theirs, "attributes")
        for name, fact in object_at(ours, "attributes").items():
            if any(_size(fact, kind) and not _size(facts.get(name), kind) for kind in _LISTS):
                return True
    return False


def _groups(wanted: Spec, stored: Spec) -> bool:
    return any(
        _size(use, "compatibilityGroups") > _size(other, "compatibilityGroups")
        for ours, theirs in _pairs(wanted, stored, "devices")
        if isinstance(ours, dict) and isinstance(theirs, dict)
        for use, other in _pairs(ours, theirs, "consumesCounters")
    )


_LISTS: Final = ("ints", "bools", "strings", "versions")
_GATES: Final[tuple[tuple[str, Test], ...]] = (
    ("DRADeviceTaints", _fewer("taints")),
    ("DRAPartitionableDevices", _partitions),
    ("DRADeviceBindingConditions", _bindings),
    ("DRAConsumableCapacity", _unset("allowMultipleAllocations")),
    ("DRAListTypeAttributes", _lists),
    ("DRANodeAllocatableResources", _fewer("nodeAllocatableResourceMappings")),
    (
        "DRAPartitionableDevicesType",
        lambda wanted, stored: _size(wanted, "partitionTypeAttribute") > _size(stored, "partitionTypeAttribute"),
    ),
    (
        "DRAOptionalNodeOperations",
        lambda wanted, stored: _size(wanted, "skipNodeOperations") > _size(stored, "skipNodeOperations"),
    ),
    ("DRADeviceCompatibilityGroups", _groups),
)
