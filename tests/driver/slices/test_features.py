from __future__ import annotations

from typing import Any

import pytest

from driver.slices.errors import DroppedFieldsError

Json = dict[str, Any]


def body(*devices: Json, **spec: Any) -> Json:
    return {"spec": {"devices": list(devices), **spec}}


def use(**fields: Any) -> Json:
    return {"name": "d", "consumesCounters": [{"counterSet": "s", **fields}]}


@pytest.mark.parametrize(
    ("desired", "actual", "features"),
    [
        (body({"taints": [{}, {}]}), body({"taints": [{}]}), ("DRADeviceTaints",)),
        (body(perDeviceNodeSelection=True), body(), ("DRAPartitionableDevices",)),
        (body(sharedCounters=[{}]), body(), ("DRAPartitionableDevices",)),
        (body(use()), body({"name": "d"}), ("DRAPartitionableDevices",)),
        (body({"bindingConditions": ["a"]}), body({}), ("DRADeviceBindingConditions",)),
        (body({"bindsToNode": True}), body({}), ("DRADeviceBindingConditions",)),
        (body({"allowMultipleAllocations": False}), body({}), ("DRAConsumableCapacity",)),
        (body({"attributes": {"l": {"ints": [1]}}}), body({"attributes": {"l": {}}}), ("DRAListTypeAttributes",)),
        (body({"nodeAllocatableResourceMappings": {"cpu": {}}}), body({}), ("DRANodeAllocatableResources",)),
        (body(partitionTypeAttribute="a/b"), body(), ("DRAPartitionableDevicesType",)),
        (body(skipNodeOperations=["*"]), body(), ("DRAOptionalNodeOperations",)),
        (body(use(compatibilityGroups=["g"])), body(use()), ("DRADeviceCompatibilityGroups",)),
        (
            body({"taints": [{}]}, {"allowMultipleAllocations": True}),
            body({}, {}),
            ("DRADeviceTaints", "DRAConsumableCapacity"),
        ),
        (body({"later": 1}), body({}), ()),
        (body({}), body({}), ()),
    ],
)
def test_what_is_missing_names_the_gates_that_are_off(desired: Json, actual: Json, features: tuple[str, ...]) -> None:
    error = DroppedFieldsError("p", 3, desired, actual)
    assert error.disabled_features() == features
    assert str(error) == (
        "pool p, slice 3: the API server stored it without some fields; features that are probably off: "
        f"{', '.join(features) or 'unknown'}; turn them on, or do not publish what needs them"
    )
