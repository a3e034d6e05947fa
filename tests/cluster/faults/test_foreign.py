"""Another plugin that takes the same resource."""

from __future__ import annotations

import signal
import sys

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import Api
from tests.cluster.rig.node import Node
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import Pods, phase, simple
from tests.cluster.rig.processes import Inside, wait_until

GPU = "nvidia.com/gpu"
PLUGINS = "/var/lib/kubelet/device-plugins"


def foreign_plugin(node: Node, *ids: str) -> Inside:
    """A bare plugin with devices of its own that registers once and for all."""
    return node.spawn("foreign", sys.executable, "-m", "bench.floor", PLUGINS, ",".join(ids), "", GPU)


def test_a_foreign_plugin_is_named_and_the_resource_is_ours_again_when_it_is_gone(
    api: Api, node: Node, pods: Pods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    ours = set(allocatable_ids_of(node, 2))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("user", resources={GPU: 1}))
    held = devices_of(node, "user")

    foreign = foreign_plugin(node, "strange-1", "strange-2", "strange-3")
    try:
        wait_until("the kubelet has the foreign devices", lambda: "strange-1" in allocatable_ids(node, GPU))
        wait_until("the agent has seen it", lambda: bool(foreign_events(agent.ask("status"))), timeout=90)
        event = foreign_events(agent.ask("status"))[0]
        assert GPU in event["message"]
        assert "floor-" in event["message"]
    finally:
        foreign.end(signal.SIGKILL)
    wait_until("our devices are back", lambda: set(allocatable_ids(node, GPU)) == ours, timeout=90)
    wait_allocatable(api, node, GPU, 2)
    assert phase(pods.get("user")) == "Running"
    assert devices_of(node, "user") == held
    pods.run(simple("next", resources={GPU: 1}))
    assert not set(devices_of(node, "next")) & set(held)


def allocatable_ids_of(node: Node, count: int) -> list[str]:
    wait_until(f"the kubelet knows {count} devices", lambda: len(allocatable_ids(node, GPU)) == count)
    return allocatable_ids(node, GPU)


def foreign_events(status: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    """What the agent told people of other plugins."""
    return [event for event in status.get("events", []) if event["reason"] in {"ForeignPlugin", "ResourceContested"}]
