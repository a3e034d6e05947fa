"""Both doors on one node: each with its own devices, and a resource that moves from one to the other and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.components.versions import has_dra_gates
from tests.cluster.door.container import STAY, Seen, seen
from tests.cluster.dra.claims import CLASSES, allocated, published, template, user
from tests.cluster.dra.classes import apply_classes
from tests.cluster.dra.conftest import GPU, GPUS, DraStage
from tests.cluster.rig.agent import NodeAgent, capacity, configuration, wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import simple
from tests.cluster.rig.processes import wait_until

BY_CLAIM = "nvidia.com/gpu-by-claim"
MOVED: Object = {"kind": "gpu", "pciAddress": ["0000:1b:00.0", "0000:43:00.0"]}
"""As the page on moving has it."""


@pytest.fixture
def extended(cluster: RigCluster, api: RigApi, classes: None) -> Iterator[None]:
    """Classes that serve both names as extended resources."""
    apply_classes(cluster, f"dra.extendedResources={{{GPU},{BY_CLAIM}}}")
    yield
    for name in (GPU, BY_CLAIM):
        cluster.kubectl("delete", "deviceclass", name.replace("/", "-"), "--ignore-not-found")


def gpus(inside: Seen) -> set[str]:
    """The device files of whole GPUs."""
    return {path for path in inside.below("/dev/nvidia") if path.removeprefix("/dev/nvidia").isdecimal()}


@pytest.mark.usefixtures("extended")
def test_each_door_has_its_own_devices_and_a_pod_may_have_of_both_by_name(
    stage: DraStage,
) -> None:
    cluster, node, claims, pods = stage.cluster, stage.node, stage.claims, stage.pods
    api = cluster.api
    agent = stage.run_driver(
        "h100-sxm-8",
        {"name": BY_CLAIM, "door": "dra", "devices": MOVED},
        {"name": GPU, "devices": {"kind": "gpu", "vendor": "nvidia", "migEnabled": False}},
    )
    claims.wait_slices(2)
    wait_allocatable(api, node, GPU, 6)
    by_claim = {
        entry["path"]
        for one in agent.ask("devices")["devices"]
        if one["name"] in published(claims.slices())
        for entry in one["nodes"]
        if entry["role"] == "device"
    }
    if not has_dra_gates(cluster.version):
        for found in api.items(CLASSES):
            assert "extendedResourceName" not in found["spec"], "the gate is off"
        pods.create(simple("neither", STAY, {BY_CLAIM: 1}))
        pods.wait_event("neither", "FailedScheduling", BY_CLAIM)
        return
    pods.run(simple("claims", STAY, {BY_CLAIM: 1}))
    pods.run(simple("plugin", STAY, {GPU: 5}))
    pods.run(simple("both", STAY, {GPU: 1, BY_CLAIM: 1}))
    given = {name: gpus(seen(pods, name)) for name in ("claims", "plugin", "both")}
    assert [len(given[name]) for name in ("claims", "plugin", "both")] == [1, 5, 2]
    assert len(set.union(*given.values())) == 8, "no device is given twice"
    assert [len(given[name] & by_claim) for name in ("claims", "plugin", "both")] == [1, 0, 1]


@pytest.mark.usefixtures("extended", "lists_claims")
def test_a_resource_moves_from_door_to_door_and_back_as_the_page_says(
    stage: DraStage,
) -> None:
    """With systemd: the node is emptied, the rule's door changed, and the agent told to reload."""
    cluster, node, claims, pods = stage.cluster, stage.node, stage.claims, stage.pods
    api = cluster.api
    at_plugin: Object = {**GPUS, "door": "plugin"}
    agent = stage.run_driver("l4-2", at_plugin)
    wait_allocatable(api, node, GPU, 2)
    pods.run(asking("before"))
    process = agent.process.pid

    cluster.kubectl("cordon", node.name)
    cluster.kubectl("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=240s")
    wait_until("the kubelet has cleaned up", lambda: not pods.on_disk(node))
    change_door(agent, node, GPUS)
    claims.wait_slices(2)
    shown = wait_allocatable(api, node, GPU, 0)
    # What the pod had is listed until the kubelet has told that nobody has it; the others may be gone already.
    assert capacity(shown, GPU) <= 2
    cluster.kubectl("uncordon", node.name)
    claims.create(template("one"))
    moved = pods.run(user("moved", STAY, own="one"))
    held = allocated(claims.of_pod(moved))
    if has_dra_gates(cluster.version):
        # A pod that is written as before.
        pods.run(asking("after"))
        assert not gpus(seen(pods, "after")) & gpus(seen(pods, "moved"))
        pods.delete("after")
        wait_until("its device is free", lambda: len(agent.ask("claims")["claims"]) == 1)

    # And back, with a claim that stays: its device is not offered, and the other one is.
    change_door(agent, node, at_plugin)
    wait_allocatable(api, node, GPU, 1)
    mine = claims.of_pod(moved)["metadata"]
    why = f"held through the dra door by default/{mine['name']} ({mine['uid']})"

    def kept() -> list[tuple[str, str]]:
        found = [one for one in agent.ask("devices")["devices"] if one["name"] in held]
        return [(one.get("offered_as", ""), one.get("offer_reason", "")) for one in found]

    wait_until("the reason names the claim", lambda: kept() == [("Unhealthy", why)])
    pods.run(asking("plugin-again"))
    assert not gpus(seen(pods, "plugin-again")) & gpus(seen(pods, "moved"))
    pods.delete("moved")
    wait_allocatable(api, node, GPU, 2)
    assert agent.process.pid == process


def asking(name: str) -> Object:
    """A pod that asks for a GPU as it always did, wherever it comes from."""
    return simple(name, STAY, {GPU: 1})


def change_door(agent: NodeAgent, node: RigNode, *resources: Object) -> None:
    """Edit the configuration and reload it."""
    kubernetes = {"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "events": "off"}
    agent.configure(configuration("l4-2", *resources, kubernetes=kubernetes))
    agent.command("reload")
