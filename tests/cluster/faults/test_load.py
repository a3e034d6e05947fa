"""Many pods: one after the other, and all at once."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import devices_of
from tests.cluster.rig.pods import RigPods, phase, simple

GPU = "nvidia.com/gpu"


def test_twenty_pods_at_once_share_the_node_and_no_device_is_given_twice(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("h100-sxm-8"))
    wait_allocatable(api, node, GPU, 8)
    names = [pods.create(simple(f"at-once-{index}", resources={GPU: 1})) for index in range(20)]
    while names:
        running = [name for name in names if phase(pods.get(name)) == "Running"]
        used = [id_ for name in running for id_ in devices_of(node, name)]
        assert len(used) == len(set(used))
        assert not [name for name in names if phase(pods.get(name)) == "Failed"]
        for name in running:
            pods.delete(name)
            names.remove(name)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_hundred_pods_in_sequence_each_get_a_device(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    for index in range(200):
        name = f"sequence-{index}"
        assert "GPU-" in pods.finish(simple(name, "echo $NVIDIA_VISIBLE_DEVICES", {GPU: 1}))
        pods.delete(name)
