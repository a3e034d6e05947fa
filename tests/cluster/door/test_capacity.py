"""What the Node object says of the agent's devices."""

from __future__ import annotations

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import allocatable, capacity, configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode


def test_the_node_offers_every_gpu(api: RigApi, node: RigNode, run_agent: RunAgent) -> None:
    run_agent(configuration("h100-sxm-8"))
    shown = wait_allocatable(api, node, "nvidia.com/gpu", 8)
    assert capacity(shown, "nvidia.com/gpu") == 8


def test_without_an_agent_nothing_is_offered_and_the_capacity_is_remembered(
    api: RigApi, node: RigNode, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    wait_allocatable(api, node, "nvidia.com/gpu", 2)
    agent.stop()
    shown = wait_allocatable(api, node, "nvidia.com/gpu", 0)
    assert capacity(shown, "nvidia.com/gpu") == 2
    agent.start()
    assert allocatable(wait_allocatable(api, node, "nvidia.com/gpu", 2), "nvidia.com/gpu") == 2
