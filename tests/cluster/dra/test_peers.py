"""A claim that was written for NVIDIA's driver runs unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.door.container import STAY, seen
from tests.cluster.dra.claims import Claims, allocated, devices, request, template, user
from tests.cluster.dra.classes import apply_classes
from tests.cluster.dra.conftest import GPUS, RunDriver
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import RigPods

PEER = "gpu.nvidia.com"
CHOICE = (
    f"device.attributes['{PEER}'].productName.lowerAscii().matches('^.*h100.*$') && "
    f"device.capacity['{PEER}'].memory.compareTo(quantity('60Gi')) > 0"
)
SHARING = {
    "opaque": {
        "driver": PEER,
        "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "GpuConfig",
            "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}},
        },
    }
}
"""Parameters of the other driver: nobody here reads them."""


@pytest.fixture
def peer_classes(cluster: RigCluster, classes: None) -> Iterator[None]:
    """The classes that NVIDIA's driver has."""
    apply_classes(cluster, f"dra.alsoPublishAs={{{PEER}}}")
    yield
    cluster.kubectl("delete", "deviceclass", PEER, "mig.nvidia.com", "--ignore-not-found")


def test_a_claim_for_nvidias_driver_gets_one_of_our_devices(
    run_driver: RunDriver, claims: Claims, pods: RigPods, peer_classes: None
) -> None:
    run_driver("h100-sxm-8", GPUS, dra={"alsoPublishAs": [PEER]})
    claims.wait_slices(8)
    claims.create(template("single-gpu", devices(request(PEER, cel=CHOICE), config=[SHARING])))
    found = pods.run(user("user", STAY, own="single-gpu"))
    (device,) = allocated(claims.of_pod(found))
    assert device.startswith("gpu-")
    inside = seen(pods, "user").below("/dev/nvidia")
    assert len([path for path in inside if path.removeprefix("/dev/nvidia").isdecimal()]) == 1
