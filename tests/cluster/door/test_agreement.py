"""The kubelet, the agent and the containers say the same of who has what."""

from __future__ import annotations

from tests.cluster.conftest import RunAgent
from tests.cluster.door.container import STAY, seen
from tests.cluster.rig.agent import allocatable, configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, listed
from tests.cluster.rig.pods import RigPods, container, pod, simple

GPU, NIC = "nvidia.com/gpu", "example.com/nic"


def test_kubelet_agent_node_and_containers_agree(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    gpus = {"name": GPU, "devices": {"kind": "gpu"}}
    nics = {"name": NIC, "devices": {"kind": ["nic", "rdma"]}, "rdmaDevices": False}
    agent = run_agent(configuration("h100-sxm-8", gpus, nics))
    known = {name: agent.offered(name) for name in (GPU, NIC)}
    by_node = {}
    for name in (GPU, NIC):
        by_node[name] = allocatable(wait_allocatable(api, node, name, len(known[name])), name)
        assert allocatable_ids(node, name) == sorted(known[name])
    assert {entry["name"]: int(entry["devices"]) for entry in agent.ask("status")["resources"]} == by_node

    pods.run(pod("pair", container("left", STAY, {GPU: 3}), container("right", STAY, {GPU: 1, NIC: 2})))
    pods.run(simple("single", STAY, {NIC: 1}))
    told = {}
    for name, of in (("pair", "left"), ("pair", "right"), ("single", "main")):
        env = seen(pods, name, of).env
        said = {(GPU, env.get("NVIDIA_VISIBLE_DEVICES", "")), (NIC, env.get("PCIDEVICE_EXAMPLE_COM_NIC", ""))}
        told[name, of] = sorted((kind, id_) for kind, ids in said for id_ in ids.split(",") if id_)
    assert listed(node) == told
    # What is held is still allocatable: the kubelet counts, and subtracts nothing.
    assert allocatable_ids(node, GPU) == sorted(known[GPU])
