"""The container runtime restarted, and the kubelet's folders emptied, while pods use devices."""

from __future__ import annotations

import signal

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import RigPods, phase, simple
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_pods_and_devices_outlive_the_container_runtime(
    number: signal.Signals, api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("first", resources={GPU: 1}))
    held = devices_of(node, "first")

    node.stop_containerd(number)
    node.start_containerd()
    pods.run(simple("second", resources={GPU: 1}))

    found = pods.get("first")
    assert phase(found) == "Running"
    assert [one["restartCount"] for one in found["status"]["containerStatuses"]] == [0]
    assert devices_of(node, "first") == held
    assert not set(devices_of(node, "second")) & set(held)


@pytest.mark.parametrize("registration", ["registry", "register"])
def test_an_emptied_socket_folder_is_filled_again_when_the_kubelet_is_restarted(
    registration: str, api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2", kubelet={"registration": registration}))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("first", resources={GPU: 1}))

    # What a clean-up script does that is too thorough: sockets of everybody, the kubelet's own, and its checkpoint.
    for folder in ("device-plugins", "plugins_registry"):
        node.run("find", f"/var/lib/kubelet/{folder}", "-mindepth", "1", "-delete")
    node.stop_kubelet()
    node.start_kubelet()
    node.wait_ready(api)
    wait_allocatable(api, node, GPU, 2)

    # The kubelet has forgotten which device it has; ostler has not, and gives that to nobody until its containers end.
    pods.delete("first", grace=1)
    wait_until("its device is free", lambda: len(allocatable_ids(node, GPU)) == 2)
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("all", resources={GPU: 2}))
    assert len(devices_of(node, "all")) == 2


def test_a_deleted_socket_of_the_agent_comes_back_by_itself(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    node.run("sh", "-c", "rm /var/lib/kubelet/plugins_registry/*.sock")
    # The kubelet drops a plugin whose socket vanished, and finds the new one at its next look, both within seconds.
    wait_until("it is registered again", lambda: agent.process.output.count("msg=registered") == 2)
    wait_until("the kubelet has the devices again", lambda: len(allocatable_ids(node, GPU)) == 2)
    pods.run(simple("all", resources={GPU: 2}))
    assert len(devices_of(node, "all")) == 2
