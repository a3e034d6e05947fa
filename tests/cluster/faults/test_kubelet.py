"""The kubelet restarted and killed while pods use devices.

The kubelet admits its pods again about 0.9 s after its socket appears. A pod whose ordinary init container asked for a
device dies unless the resource is registered before that; one with devices in app containers alone lives on anyhow.
"""

from __future__ import annotations

import signal
from itertools import product

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import allocatable, configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import FOREVER, RigPods, container, phase, pod, simple

GPU = "nvidia.com/gpu"
KUBELET = {
    "registry": {"registration": "registry"},
    "register": {"registration": "register"},
}


@pytest.mark.parametrize("way", list(product(KUBELET, [signal.SIGTERM, signal.SIGKILL])), ids=str)
def test_no_running_pod_dies_when_the_kubelet_restarts(
    way: tuple[str, signal.Signals], api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    path, number = way
    agent = run_agent(configuration("h100-sxm-8", kubelet=KUBELET[path]))
    wait_allocatable(api, node, GPU, 8)
    with_init = pod(
        "with-init", container("main", FOREVER, {GPU: 1}), initContainers=[container("init", "true", {GPU: 1})]
    )
    uids = {name: pods.run(made)["metadata"]["uid"] for name, made in (
        ("with-init", with_init), ("plain", simple("plain", resources={GPU: 2})),
    )}  # fmt: skip

    node.stop_kubelet(number)
    node.start_kubelet()
    # Admitted again means: the kubelet starts new pods, and it looked at the old ones first.
    pods.run(simple("new", resources={GPU: 1}))

    for name, uid in uids.items():
        found = pods.get(name)
        assert phase(found) == "Running", found["status"]
        assert found["metadata"]["uid"] == uid
        assert [one["restartCount"] for one in found["status"]["containerStatuses"]] == [0]
    assert allocatable(wait_allocatable(api, node, GPU, 8), GPU) == 8
    resource = agent.ask("status")["resources"][0]
    assert (resource["registration"], resource["path"]) == ("registered", path)


def test_the_node_never_shows_zero_while_the_kubelet_restarts(api: RigApi, node: RigNode, run_agent: RunAgent) -> None:
    run_agent(configuration("h100-sxm-8"))
    wait_allocatable(api, node, GPU, 8)
    node.stop_kubelet()
    path = f"/api/v1/nodes/{node.name}"
    before = last_heartbeat(api.get(path))
    node.start_kubelet()
    seen = []

    def told_again(found: dict[str, object]) -> bool:
        seen.append(allocatable(found, GPU))
        return last_heartbeat(found) > before

    # The restarted kubelet has written its status when a heartbeat is newer than the last one before.
    api.wait(path, "has a status of the new kubelet", told_again)
    node.wait_ready(api)
    assert set(seen) == {8}


def last_heartbeat(found: dict[str, object]) -> str:
    """When the kubelet last wrote its status; sorts as text."""
    conditions = found["status"]["conditions"]  # type: ignore[index]
    return max(str(condition["lastHeartbeatTime"]) for condition in conditions)
