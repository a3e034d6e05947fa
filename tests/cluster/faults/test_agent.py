"""The agent restarted, killed and replaced while pods use devices."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import configuration, wait_allocatable
from tests.cluster.rig.api import Api
from tests.cluster.rig.node import Node
from tests.cluster.rig.podresources import devices_of
from tests.cluster.rig.pods import Pods, phase, simple
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_pods_keep_their_devices_when_the_agent_restarts(
    number: signal.Signals, api: Api, node: Node, pods: Pods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("first", resources={GPU: 1}))
    held = devices_of(node, "first")

    agent.stop(number)
    agent.start()
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("second", resources={GPU: 1}))

    assert phase(pods.get("first")) == "Running"
    assert devices_of(node, "first") == held
    assert not set(devices_of(node, "second")) & set(held)


def test_an_agent_killed_in_the_middle_of_an_allocation_hands_nothing_out_twice(
    api: Api, node: Node, pods: Pods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("first", resources={GPU: 1}))

    # Stopped, it has the call in its socket and never answers.
    agent.process.send(signal.SIGSTOP)
    name = pods.create(simple("caught", resources={GPU: 1}))
    pods.wait(name, "is bound", lambda found: bool(found["spec"].get("nodeName")))
    wait_until("the kubelet asks", lambda: unread_by(agent.process.pid))
    agent.stop(signal.SIGKILL)
    # The kubelet does not ask twice: such a pod fails, and its controller makes a new one.
    failed = pods.wait(name, "has failed", lambda found: phase(found) == "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"

    agent.start()
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("next", resources={GPU: 1}))
    used = devices_of(node, "first") + devices_of(node, "next")
    assert len(used) == len(set(used)) == 2


def unread_by(pid: int) -> bool:
    """Whether bytes wait in a Unix socket of a process that reads none: the kubelet's call."""
    shown = subprocess.run(["ss", "-xnp"], check=True, capture_output=True, text=True).stdout
    return any(f"pid={pid}," in line and line.split()[2] != "0" for line in shown.splitlines())


def test_an_upgrade_through_the_standby_leaves_no_gap_that_a_pod_can_notice(
    api: Api, node: Node, pods: Pods, run_agent: RunAgent
) -> None:
    document = configuration("h100-sxm-8")
    old = run_agent(document)
    wait_allocatable(api, node, GPU, 8)
    pods.run(simple("before", resources={GPU: 1}))
    new = run_agent(document, "ostler-new", start=False)
    process = new.spawn()
    wait_until("the new one is standby", lambda: "standby" in process.output, alive=process.died)

    old.process.send(signal.SIGTERM)
    # Created in the very moment of the change: it waits for nothing and fails at nothing.
    pods.run(simple("during", resources={GPU: 1}))
    wait_until("the new one is ready", new.ready, alive=process.died)

    assert new.ask("status")["role"] == "active"
    assert phase(pods.get("before")) == "Running"
    seen = [wait_allocatable(api, node, GPU, 8)["status"]["allocatable"][GPU] for _ in range(3)]
    assert set(seen) == {"8"}


def test_a_pod_that_ends_while_no_agent_runs_leaves_its_device_free(
    api: Api, node: Node, pods: Pods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("all", resources={GPU: 2}))
    agent.stop(signal.SIGKILL)
    pods.delete("all")
    agent.start()
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("all-again", resources={GPU: 2}))
    assert len(devices_of(node, "all-again")) == 2
