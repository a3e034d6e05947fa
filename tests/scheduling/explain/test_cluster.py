"""Features by version of the cluster, and DeviceTaintRules merged into slices."""

from __future__ import annotations

import pytest

from kube.bodies import JsonObject
from scheduling.allocator.pools import Features
from scheduling.allocator.slices import DeviceID
from scheduling.explain.cluster import apply, features_of, minor_of, note_of
from scheduling.explain.state import objects_at
from tests.making.slices import DRIVER
from tests.scheduling.explain.objects import resource_slice, taint_rule


@pytest.mark.parametrize(
    ("version", "minor"), [("v1.37.0", 37), ("v1.36.0+k3s1", 36), ("1.34.0-eks-1234", 34), ("", None), ("main", None)]
)
def test_the_minor_version_is_read(version: str, minor: int | None) -> None:
    assert minor_of(version) == minor


@pytest.mark.parametrize("version", ["v1.37.0", "v1.40.0", ""])
def test_a_current_cluster_has_todays_features(version: str) -> None:
    assert features_of(version) == Features()


def test_an_older_cluster_lacks_what_came_later() -> None:
    features = features_of("v1.34.0")
    assert (features.admin_access, features.prioritized_list) == (True, True)
    assert not features.partitionable_devices
    assert not features.device_taints
    assert not features.consumable_capacity
    assert not features_of("v1.33.0").prioritized_list


@pytest.mark.parametrize(
    ("version", "note"),
    [
        ("", ""),
        ("v1.36.0", ""),
        ("v1.37.0", ""),
        ("v1.39.0", "the cluster is v1.39.0; the answer follows the scheduler of Kubernetes 1.37"),
        (
            "v1.35.0",
            (
                "the cluster is v1.35.0; the answer follows the rules of 1.37, with these gates off as they are by "
                "default there: DRAPartitionableDevices, DRADeviceTaints, DRADeviceBindingConditions, "
                "DRAConsumableCapacity"
            ),
        ),
    ],
)
def test_a_version_that_is_not_followed_is_noted(version: str, note: str) -> None:
    assert note_of(version) == note


TAINT: JsonObject = {"key": "drain", "value": "now", "effect": "NoSchedule"}


def taints(body: JsonObject) -> list[list[JsonObject]]:
    return [list(objects_at(device, "taints")) for device in objects_at(body, "spec", "devices")]


def test_a_rule_taints_the_devices_that_all_its_fields_name() -> None:
    slices = [resource_slice("s", "node-a", "gpu-0", "gpu-1"), resource_slice("t", "node-b", "gpu-1")]
    rule = taint_rule("r", deviceSelector={"driver": DRIVER, "pool": "node-a", "device": "gpu-1"}, taint=TAINT)
    made = apply([rule], slices)
    assert taints(made.slices[0]) == [[], [TAINT]]
    assert made.slices[1] is slices[1]
    assert made.rules == {(DeviceID(DRIVER, "node-a", "gpu-1"), "drain", "now", "NoSchedule"): "r"}


def test_an_empty_selector_names_all_and_none_names_none() -> None:
    slices = [resource_slice("s", "node-a", "gpu-0")]
    assert taints(apply([taint_rule("r", deviceSelector={}, taint=TAINT)], slices).slices[0]) == [[TAINT]]
    assert apply([taint_rule("r", taint=TAINT)], slices).slices == (slices[0],)


def test_the_drivers_own_taints_come_first_and_stay() -> None:
    own: JsonObject = {"key": "xid", "effect": "NoSchedule"}
    body = resource_slice("s", "node-a", "gpu-0")
    body["spec"]["devices"][0]["taints"] = [own]  # type: ignore[index,call-overload]
    made = apply([taint_rule("r", deviceSelector={"driver": DRIVER}, taint=TAINT)], [body])
    assert taints(made.slices[0]) == [[own, TAINT]]
    assert taints(body) == [[own]]


def test_a_rule_of_another_driver_changes_nothing() -> None:
    slices = [resource_slice("s", "node-a", "gpu-0")]
    made = apply([taint_rule("r", deviceSelector={"driver": "other"}, taint=TAINT)], slices)
    assert made.slices[0] is slices[0]
