"""GPUs with the NICs beside them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

from google.protobuf import json_format

from protos.agent.v1alpha1 import agent_pb2
from sandbox.tour import DeviceDistances
from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import listed
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import wait_until

GPU, RDMA = "nvidia.com/gpu", "example.com/rdma"
CHURN = 8
"""Rounds in which some pods end and as many start."""


def nearness(agent: NodeAgent) -> DeviceDistances:
    """Distances by the devices' own paths; nothing has moved them."""
    devices = json_format.ParseDict(agent.ask("devices"), agent_pb2.ListDevicesResponse(), ignore_unknown_fields=True)
    return DeviceDistances(devices, agent_pb2.GetTopologyResponse())


def lists(node: RigNode, count: int) -> bool:
    """Whether the kubelet has so many containers."""
    return len(listed(node)) == count


def test_pods_one_after_the_other_get_each_a_gpu_and_the_nic_beside_it(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    """On a node that fills up, in whichever order the kubelet takes the two resources: a new one for every pod."""
    rules = ({"name": GPU, "devices": {"kind": "gpu"}}, {"name": RDMA, "devices": {"kind": "rdma"}})
    agent = run_agent(configuration("h100-sxm-8", *rules, defaults={"rdmaDevices": False}))
    near = nearness(agent)
    for resource in (GPU, RDMA):
        wait_allocatable(api, node, resource, 8)
    for index in range(8):
        pods.run(simple(f"near-{index}", resources={GPU: 1, RDMA: 1}))
    given = [dict(entries) for entries in listed(node).values()]
    assert [near.between(each[GPU], each[RDMA]) for each in given] == ["PXB"] * 8
    assert len({id_ for each in given for id_ in each.values()}) == 16


def test_pods_that_come_and_go_get_each_a_gpu_and_the_nic_beside_it(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    """Where every pod takes one of each, the free ones always go together in pairs, and every pod gets such a pair.

    The kubelet takes the two resources in random order, so that a score of pods sees both orders many times.
    """
    rules = ({"name": GPU, "devices": {"kind": "gpu"}}, {"name": RDMA, "devices": {"kind": "rdma"}})
    agent = run_agent(configuration("h100-sxm-8", *rules, defaults={"rdmaDevices": False}))
    near = nearness(agent)
    for resource in (GPU, RDMA):
        wait_allocatable(api, node, resource, 8)
    random = Random(5)
    running = [f"start-{index}" for index in range(8)]
    for name in running:
        pods.run(simple(name, resources={GPU: 1, RDMA: 1}))
    seen: Counter[str] = Counter()
    for turn in range(CHURN):
        gone = random.sample(running, 3)
        pods.end(*gone)
        running = [name for name in running if name not in gone]
        wait_until("the devices are free", partial(lists, node, len(running)))
        for index in range(3):
            running.append(name := f"turn-{turn}-{index}")
            pods.run(simple(name, resources={GPU: 1, RDMA: 1}))
            given = dict(listed(node)[name, "main"])
            seen[near.between(given[GPU], given[RDMA])] += 1
    assert seen == {"PXB": 3 * CHURN}
