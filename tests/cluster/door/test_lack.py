"""More is asked for than there is, and devices that pods have given back."""

from __future__ import annotations

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import devices_of
from tests.cluster.rig.pods import RigPods, phase, simple

GPU = "nvidia.com/gpu"


def test_a_pod_that_asks_for_too_many_waits_with_an_event_that_names_the_resource(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("first", resources={GPU: 1}))
    for name, count in (("never", 3), ("later", 2)):
        pods.create(simple(name, resources={GPU: count}))
        event = pods.wait_event(name, "FailedScheduling", f"Insufficient {GPU}")
        assert (event["type"], event["message"].count("Insufficient")) == ("Warning", 1)
        assert phase(pods.get(name)) == "Pending"
    (held,) = devices_of(node, "first")
    pods.delete("first")
    pods.wait_phase("later", "Running")
    assert held in devices_of(node, "later")
    assert phase(pods.get("never")) == "Pending"


def test_devices_of_pods_that_have_ended_are_given_again_while_the_pods_are_there(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    told = "echo $NVIDIA_VISIBLE_DEVICES"
    both = set(pods.finish(simple("succeeded", told, {GPU: 2})).strip().split(","))
    name = pods.create(simple("failed", f"{told}; exit 3", {GPU: 2}))
    pods.wait(name, "has failed", lambda one: phase(one) == "Failed")
    assert set(pods.output(name).strip().split(",")) == both
    pods.run(simple("next", resources={GPU: 2}))
    assert set(devices_of(node, "next")) == both
