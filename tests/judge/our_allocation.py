"""Our own answers to cases of the allocator, in the judge's format."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from driver.quantity import of_json
from driver.structured.allocated import AllocatedState
from driver.structured.allocator import Allocator
from driver.structured.errors import FatalError, NodeError
from driver.structured.features import Features
from driver.structured.identity import DeviceID, SharedDeviceID

Json = dict[str, Any]


def classes(case: Json) -> dict[str, Json]:
    """The device classes of a case by name; of two with one name the first."""
    return {each["metadata"]["name"]: each for each in reversed(case["classes"])}


def features(case: Json) -> Features:
    """The switches of a case; what the vectors do not know was off."""
    given = case["features"]
    return Features(
        admin_access=given["adminAccess"],
        prioritized_list=given["prioritizedList"],
        partitionable_devices=given["partitionableDevices"],
        device_taints=given["deviceTaints"],
        binding_conditions=given["deviceBindingAndStatus"],
        consumable_capacity=given["consumableCapacity"],
        fractional_capacity_range=given.get("fractionalCapacityRange", False),
        list_attributes=given["listTypeAttributes"],
    )


def allocated(case: Json) -> AllocatedState:
    """What is in use in a case."""
    given = case["allocated"]
    capacity: dict[DeviceID, dict[str, int]] = {}
    for entry in given.get("capacity", ()):
        used = capacity.setdefault(DeviceID(entry["driver"], entry["pool"], entry["device"]), {})
        for name, value in entry["consumed"].items():
            used[name] = used.get(name, 0) + of_json(value).nanos
    return AllocatedState(
        devices=frozenset(DeviceID(*each) for each in given.get("devices", ())),
        shared=frozenset(SharedDeviceID(DeviceID(*each[:3]), each[3]) for each in given.get("shared", ())),
        capacity=capacity,
    )


def allocator(case: Json, give_up: Callable[[], bool] | None = None) -> Allocator:
    """The allocator of a case; it does not share objects with the case."""
    case = copy.deepcopy(case)
    return Allocator(
        case["claims"], allocated(case), classes(case), case["slices"], features=features(case), give_up=give_up
    )


def allocate(case: Json) -> Json:
    """Our answer to a case of the allocator."""
    try:
        results = allocator(case).allocate(case["node"])
    except FatalError as error:
        return {"results": None, "error": str(error), "errorKind": "fatal"}
    except NodeError as error:
        return {"results": None, "error": str(error), "errorKind": "node"}
    return {"results": results, "error": None, "errorKind": None}
