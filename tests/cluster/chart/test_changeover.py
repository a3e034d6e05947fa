"""A node that changes over from another plugin, with pods running, as the page on migrating says."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator

import pytest

from deploy.generate import NAMESPACE
from tests.cluster.chart.release import Release, recorded
from tests.cluster.rig.agent import OSTLER, allocatable, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import Inside, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]  # the first test may have to build the image

GPU = "nvidia.com/gpu"
RECORDING = "l4-2"
PLUGINS = "/var/lib/kubelet/device-plugins"
THEIRS = "version: v1\nflags:\n  migStrategy: none\n  plugin:\n    deviceListStrategy: [envvar]\n"
"""The configuration of the plugin before, which goes into the chart as it is."""
LABEL = "ostler.dev/agent"


def ids_before(node: RigNode) -> list[str]:
    """What ``ostler`` would offer, looked up before anything is touched: the ids of the plugin before."""
    shown = node.run(*OSTLER, "devices", "--scan", "--recorded", recorded(RECORDING), "-o", "json")
    return sorted(device["offered_id"] for device in json.loads(shown)["devices"] if device.get("resource") == GPU)


def plugin_before(node: RigNode, ids: list[str]) -> Inside:
    """A bare plugin in the place of NVIDIA's."""
    return node.spawn("before", sys.executable, "-m", "bench.floor", PLUGINS, ",".join(ids), "/dev/nvidiactl", GPU)


@pytest.fixture
def schedulable(cluster: RigCluster, node: RigNode) -> Iterator[None]:
    """Takes back what the test does to the Node, also when it fails halfway."""
    yield
    cluster.kubectl("uncordon", node.name)
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")


@pytest.mark.usefixtures("schedulable")
def test_a_node_changes_over_and_back_while_pods_keep_their_devices(
    release: Release, cluster: RigCluster, api: RigApi, node: RigNode, pods: RigPods
) -> None:
    ids = ids_before(node)
    before = plugin_before(node, ids)
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("user", resources={GPU: 1}))
    held = devices_of(node, "user")
    container = pods.get("user")["status"]["containerStatuses"]

    cluster.kubectl("cordon", node.name)
    before.end(signal.SIGTERM)
    cluster.kubectl("label", "node", node.name, f"{LABEL}=true")
    release.install(RECORDING, {"configText": THEIRS, "nodeSelector": {LABEL: "true"}})
    shown = wait_allocatable(api, node, GPU, 2)
    assert allocatable(shown, GPU) == len(ids)
    assert allocatable_ids(node, GPU) == ids
    checks = {check["name"]: check["verdict"] for check in release.ask("doctor")["checks"]}
    assert {checks[name] for name in ("registration", "kubelet-devices", "kubelet-checkpoint")} == {"ok"}
    cluster.kubectl("uncordon", node.name)
    pods.run(simple("next", resources={GPU: 1}))
    assert devices_of(node, "next") == sorted(set(ids) - set(held))
    assert devices_of(node, "user") == held
    assert pods.get("user")["status"]["containerStatuses"] == container

    # And back: the label is gone and with it the agent, the other plugin comes with the same ids.
    cluster.kubectl("cordon", node.name)
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")
    wait_until(f"no agent is left in {NAMESPACE}", lambda: not release.agents())
    after = plugin_before(node, ids)
    try:
        # The Node may still say what the agent before said.
        wait_until("the kubelet knows the plugin", lambda: allocatable_ids(node, GPU) == ids)
        wait_allocatable(api, node, GPU, 2)
        cluster.kubectl("uncordon", node.name)
        pods.delete("next")
        pods.run(simple("last", resources={GPU: 1}))
        assert devices_of(node, "last") == sorted(set(ids) - set(held))
        assert pods.get("user")["status"]["containerStatuses"] == container
    finally:
        after.end(signal.SIGTERM)
