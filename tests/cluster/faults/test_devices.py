"""A device that is lost while a pod uses it, and that comes back."""

from __future__ import annotations

from sandbox.hardware import RecordedHardware
from tests.cluster.components.versions import has_dra_gates
from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import RECORDED, capacity, configuration, wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import RigPods, phase, simple

GPU = "nvidia.com/gpu"


def health(found: Object) -> list[str]:
    """What the pod's status says of its devices."""
    return [
        resource["health"]
        for status in found["status"].get("containerStatuses", [])
        for entry in status.get("allocatedResourcesStatus", [])
        for resource in entry["resources"]
    ]


def test_a_lost_device_is_not_offered_its_pod_is_told_and_both_recover(
    cluster: RigCluster, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    api = cluster.api
    hardware = RecordedHardware(RECORDED / "h100-sxm-8.yaml", node.folder / "etc-ostler" / "hardware.yaml")
    document = configuration("h100-sxm-8", inventory={"recorded": "/etc/ostler/hardware.yaml", "maxInterval": "1s"})
    run_agent(document)
    wait_allocatable(api, node, GPU, 8)
    pods.run(simple("user", resources={GPU: 1}))
    (lost,) = devices_of(node, "user")

    hardware.fail(hardware.find(lost))
    shown = wait_allocatable(api, node, GPU, 7)
    assert capacity(shown, GPU) == 8
    if has_dra_gates(cluster.version):
        pods.wait("user", "is told that its device is unhealthy", lambda one: health(one) == ["Unhealthy"])
    assert phase(pods.get("user")) == "Running"
    assert len(allocatable_ids(node, GPU)) == 7
    assert lost not in allocatable_ids(node, GPU)
    # The scheduler counts the lost device's pod against the seven that are left: six more fit, and the seventh waits.
    pods.run(simple("others", resources={GPU: 6}))
    assert lost not in devices_of(node, "others")
    pods.create(simple("waiting", resources={GPU: 1}))
    pods.wait_event("waiting", "FailedScheduling", f"Insufficient {GPU}")

    hardware.heal(hardware.find(lost))
    if has_dra_gates(cluster.version):
        pods.wait("user", "is told that its device is healthy", lambda one: health(one) == ["Healthy"])
    pods.wait_phase("waiting", "Running")
    used = [id_ for name in ("user", "others", "waiting") for id_ in devices_of(node, name)]
    assert len(used) == len(set(used)) == 8


def test_a_device_that_left_the_bus_keeps_its_place_and_the_rest_goes_on(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    hardware = RecordedHardware(RECORDED / "h100-sxm-8.yaml", node.folder / "etc-ostler" / "hardware.yaml")
    document = configuration("h100-sxm-8", inventory={"recorded": "/etc/ostler/hardware.yaml", "maxInterval": "1s"})
    run_agent(document)
    wait_allocatable(api, node, GPU, 8)
    hardware.unplug(3)
    shown = wait_allocatable(api, node, GPU, 7)
    assert capacity(shown, GPU) == 8
    pods.run(simple("rest", resources={GPU: 7}))
    hardware.heal(3)
    wait_allocatable(api, node, GPU, 8)
