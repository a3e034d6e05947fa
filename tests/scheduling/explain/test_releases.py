"""Features by version of the cluster."""

from __future__ import annotations

import pytest

from scheduling.allocator.pools import Features
from scheduling.explain.cluster import features_of, minor_of, note_of


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
