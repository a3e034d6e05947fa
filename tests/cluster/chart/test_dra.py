"""The DRA door of the chart: claims are served, with the rights of the account and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.chart.observation import Observation
from tests.cluster.chart.release import Release, Values
from tests.cluster.components.versions import has_dra_gates
from tests.cluster.door.container import STAY, seen
from tests.cluster.dra.claims import (
    GPU_CLASS,
    NIC_CLASS,
    Claims,
    allocated,
    devices,
    matching,
    nic_entries,
    request,
    template,
    user,
)
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build the image

RECORDING, GPUS, NICS = "h100-sxm-8", 8, 10
ROOT = "resource.kubernetes.io/pcieRoot"
PAIR = devices(request(GPU_CLASS), request(NIC_CLASS, "nic"), constraints=[matching(ROOT)])
VALUES: Values = {
    "dra": {"enabled": True},
    "config": {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Config",
        "resources": [
            {"name": "nvidia.com/gpu", "door": "dra", "devices": {"kind": "gpu"}},
            {"name": "ostler.dev/nic", "door": "dra", "devices": {"kind": ["nic", "rdma"]}, "rdmaDevices": True},
        ],
    },
}
DEBUG: Values = {**VALUES, "config": {**VALUES["config"], "log": {"level": "debug"}}}


@pytest.fixture
def claims(release: Release, api: RigApi, node: RigNode, pods: RigPods) -> Iterator[Claims]:
    """Claims of the default namespace; they are released while the agents still run."""
    made = Claims(api)
    yield made
    pods.delete_all()
    agents = {pod["metadata"]["uid"] for pod in release.agents()}
    wait_until("the kubelet has cleaned up", lambda: set(pods.on_disk(node)) <= agents)
    made.delete_all()


@pytest.fixture
def installed(release: Release, claims: Claims, node: RigNode) -> Release:
    """The chart with its DRA door open, and the files that a container's NIC brings."""
    release.install(RECORDING, VALUES)
    claims.wait_slices(GPUS + NICS)
    shown = release.ask("devices")["devices"]
    node.make_devices(*sorted({entry["path"] for device in shown for entry in device["nodes"]}))
    return release


def test_a_claim_is_served_from_the_slice_to_the_container_and_its_status_tells_of_the_nic(
    installed: Release, claims: Claims, pods: RigPods
) -> None:
    claims.create(template("pair", PAIR))
    found = pods.run(user("user", STAY, own="pair"))
    claim = claims.of_pod(found)
    gpu, nic = allocated(claim)
    facts = {one["name"]: one for one in installed.ask("devices")["devices"]}
    inside = seen(pods, "user")
    wanted = {entry["path"] for name in (gpu, nic) for entry in facts[name]["nodes"] if entry["role"] == "device"}
    assert wanted <= set(inside.devices)
    numbered = {path for path in inside.below("/dev/nvidia") if path.removeprefix("/dev/nvidia").isdecimal()}
    assert len(numbered) == 1
    assert len(inside.below("/dev/infiniband/uverbs")) == 1

    wait_until("the status tells of the NIC", lambda: bool(nic_entries(claims.of_pod(found))))
    (entry,) = nic_entries(claims.of_pod(found))
    assert (entry["pool"], entry["device"]) == ("node-1", nic)
    conditions = {one["type"]: (one["status"], one["reason"]) for one in entry["conditions"]}
    assert conditions["NetworkReady"] == ("False", "InterfaceNotMoved")
    (shown,) = installed.ask("claims")["claims"]
    assert shown["name"] == claim["metadata"]["name"]
    wait_until("there is nothing to complain of", lambda: not installed.ask("status").get("reasons"))

    pods.delete("user")
    wait_until("nothing is held", lambda: installed.ask("claims")["claims"] == [])


def containers(pod: Object) -> list[Object]:
    """All that a pod's status says of its containers, but for the health of devices: the kubelet hears it later."""
    return [
        {key: value for key, value in status.items() if key != "allocatedResourcesStatus"}
        for status in pod["status"]["containerStatuses"]
    ]


def test_an_upgrade_through_the_standby_serves_claims_all_the_time(
    installed: Release, claims: Claims, node: RigNode, pods: RigPods
) -> None:
    claims.create(template("one"))
    before = pods.run(user("before", own="one"))
    stored = {one["metadata"]["uid"] for one in claims.slices()}
    old = installed.agent()["metadata"]["name"]
    with Observation(installed, node, "none/at-all") as seen_:
        installed.upgrade(RECORDING, DEBUG, wait=False)
        names: list[str] = []
        while len(names) < GPUS - 1 and old in [one["metadata"]["name"] for one in installed.agents()]:
            names.append(pods.create(user(f"during-{len(names)}", own="one")))
            pods.wait_phase(names[-1], "Running")
        for name in names:
            pods.wait_phase(name, "Running")
        assert installed.agent()["metadata"]["name"] != old
    assert min(count for _, count in seen_.serving) >= 1, "there was a moment without an agent"
    assert {one["metadata"]["uid"] for one in claims.slices()} == stored, "nothing was published anew"
    now = pods.get("before")
    assert now["metadata"]["uid"] == before["metadata"]["uid"]
    assert containers(now) == containers(before)
    used = [device for name in ("before", *names) for device in allocated(claims.of_pod(pods.get(name)))]
    assert len(used) == len(set(used)) == 1 + len(names)
    wait_until("the new one knows all claims", lambda: len(installed.ask("claims")["claims"]) == len(used))


def test_the_chart_takes_its_classes_along_and_the_kubelet_the_slices(
    cluster: RigCluster, installed: Release, claims: Claims, node: RigNode
) -> None:
    assert "kubectl get deviceclasses,resourceslices" in installed.said
    assert ("docs/dra.md lists their feature gates" in installed.said) is not has_dra_gates(cluster.version)
    assert "deviceclass.resource.k8s.io/gpu.ostler.dev" in installed.objects()
    installed.uninstall()
    assert installed.objects() == []
    wait_until("the kubelet has wiped the slices", lambda: claims.slices() == [])
    folder = node.kubelet_folder / "plugins" / "ostler.dev"
    assert [path.name for path in folder.iterdir() if path.is_socket()] == []
