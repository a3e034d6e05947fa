"""Health of devices that claims have: the kubelet's stream, and what becomes of it in the pod's status."""

from __future__ import annotations

from sandbox.hardware import RecordedHardware
from tests.cluster.components.versions import has_dra_gates
from tests.cluster.dra.claims import Claims, allocated, devices, request, template, user
from tests.cluster.dra.conftest import GPUS, DraStage, RunDriver
from tests.cluster.rig.agent import RECORDED
from tests.cluster.rig.api import Object
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods, phase
from tests.cluster.rig.processes import wait_until

REPLAYED = {"recorded": "/etc/ostler/hardware.yaml", "maxInterval": "1s"}
PATIENT = {"evictAfter": "1h"}
"""A lost GPU evicts its pods after ten seconds, in which a busy machine may not have started one."""


def health(found: Object) -> dict[str, tuple[str, str]]:
    """State and reason of each device of a pod's claims, by the kubelet's name of the device."""
    return {
        resource["resourceID"]: (resource["health"], resource.get("message", ""))
        for status in found["status"].get("containerStatuses", [])
        for entry in status.get("allocatedResourcesStatus", [])
        if entry["name"] == "claim:devices"
        for resource in entry["resources"]
    }


def is_unhealthy(found: Object, device: str) -> bool:
    """Whether the pod's status says so of the device."""
    return health(found).get(device, ("", ""))[0] == "Unhealthy"


def test_a_failed_gpu_shows_in_its_pods_status_with_the_reason_and_heals(
    cluster: RigCluster, node: RigNode, claims: Claims, pods: RigPods, run_driver: RunDriver
) -> None:
    hardware = RecordedHardware(RECORDED / "l4-2.yaml", node.folder / "etc-ostler" / "hardware.yaml")
    run_driver("l4-2", GPUS, inventory=REPLAYED, health=PATIENT)
    claims.wait_slices(2)
    claims.create(template("both", devices(request(count=2))))
    found = pods.run(user("user", own="both"))
    uid = claims.of_pod(found)["metadata"]["uid"]
    names = {device: f"ostler.dev/claim={uid}-{device}" for device in allocated(claims.of_pod(found))}
    if not has_dra_gates(cluster.version):
        assert health(pods.get("user")) == {}
        return
    well = dict.fromkeys(names.values(), ("Healthy", ""))
    pods.wait("user", "has two healthy devices", lambda one: health(one) == well)

    hardware.fail(0)
    lost = names[min(names)]
    shown = health(pods.wait("user", "is told of the failure", lambda one: is_unhealthy(one, lost)))
    assert shown[lost][1].startswith("the GPU is lost")
    assert {name: state for name, state in shown.items() if name != lost} == {
        name: state for name, state in well.items() if name != lost
    }

    hardware.heal(0)
    pods.wait("user", "is told that all is well", lambda one: health(one) == well)
    assert (phase(pods.get("user")), pods.get("user")["metadata"]["uid"]) == ("Running", found["metadata"]["uid"])


def test_a_sick_gpu_is_prepared_for_a_claim_that_tolerates_its_taint_and_else_when_it_is_well(stage: DraStage) -> None:
    """Where there are no taints, such a device may be chosen for any claim."""
    node, claims, pods = stage.node, stage.claims, stage.pods
    hardware = RecordedHardware(RECORDED / "l4-2.yaml", node.folder / "etc-ostler" / "hardware.yaml")
    agent = stage.run_driver("l4-2", GPUS, inventory=REPLAYED, health=PATIENT)
    claims.wait_slices(2)
    hardware.fail(0)
    wait_until(
        "the agent knows", lambda: "unhealthy" in {one["health"]["state"] for one in agent.ask("devices")["devices"]}
    )
    every = request(count=2, tolerations=[{"operator": "Exists"}])
    claims.create(template("both", devices(every)))
    pods.create(user("tolerant", own="both"))
    if not has_dra_gates(stage.cluster.version):
        pods.wait_event("tolerant", "FailedPrepareDynamicResources", "the GPU is lost")
        hardware.heal(0)
    pods.wait_phase("tolerant", "Running")
