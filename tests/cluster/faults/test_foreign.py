"""Another plugin that takes the same resource: named, waited for, and its devices never made to flap by us."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.foreign_plugin import SERVES
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import RigPods, phase, simple
from tests.cluster.rig.processes import Inside, wait_until

GPU = "nvidia.com/gpu"
STRANGE = ("strange-1", "strange-2", "strange-3")
SOCKETS = {
    "register": "/var/lib/kubelet/device-plugins/nvidia-gpu.sock",
    "registry": "/var/lib/kubelet/plugins_registry/gpu-plugin.sock",
}
WAYS = [("registry", "register"), ("register", "registry")]
"""How we register, and how the other plugin does."""
LOOKS = 4.0
"""Seconds in which an agent has taken all looks that follow its registration."""


@pytest.fixture(autouse=True)
def no_foreign_sockets(node: RigNode) -> Iterator[None]:
    """What killed plugins leave behind is gone after the test."""
    yield
    for path in SOCKETS.values():
        (node.kubelet_folder / Path(path).relative_to("/var/lib/kubelet")).unlink(missing_ok=True)


def foreign_plugin(node: RigNode, way: str, *ids: str) -> Inside:
    """A plugin that registers ``GPU`` once and for all."""
    return node.spawn("foreign", sys.executable, "-m", "tests.cluster.rig.foreign_plugin", way, *ids)


@pytest.mark.parametrize("ways", WAYS, ids="-".join)
def test_a_foreign_plugin_is_named_and_the_resource_is_ours_again_when_it_is_gone(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent, ways: tuple[str, str]
) -> None:
    ours, theirs = ways
    agent = run_agent(configuration("l4-2", kubelet={"registration": ours}))
    shown = known_devices(node, 2)
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("user", resources={GPU: 1}))
    held = devices_of(node, "user")

    foreign = foreign_plugin(node, theirs, *STRANGE)
    try:
        wait_until("the kubelet has the foreign devices", lambda: allocatable_ids(node, GPU) == list(STRANGE))
        wait_named(agent, SOCKETS[theirs])
        wait_allocatable(api, node, GPU, 3)
        # What the kubelet allocates meanwhile is not ours, and stays what it is afterwards.
        pods.run(simple("guest", resources={GPU: 1}))
        assert set(devices_of(node, "guest")) < set(STRANGE)
    finally:
        foreign.end(signal.SIGKILL)
    began = time.monotonic()
    wait_until("our devices are back", lambda: allocatable_ids(node, GPU) == shown)
    print(f"taken back {time.monotonic() - began:.2f} s after the other plugin was killed")
    wait_allocatable(api, node, GPU, 2)
    assert [phase(pods.get(name)) for name in ("user", "guest")] == ["Running", "Running"]
    assert devices_of(node, "user") == held
    # For the scheduler a device is a device: the guest takes the place of one of ours until it ends.
    pods.end("guest")
    pods.run(simple("next", resources={GPU: 1}))
    assert devices_of(node, "next") == sorted(set(shown) - set(held))


def test_a_foreign_plugin_with_the_same_devices_is_named(api: RigApi, node: RigNode, run_agent: RunAgent) -> None:
    agent = run_agent(configuration("l4-2"))
    shown = known_devices(node, 2)
    foreign = foreign_plugin(node, "register", *shown)
    try:
        wait_named(agent, SOCKETS["register"])
        assert allocatable_ids(node, GPU) == shown
    finally:
        foreign.end(signal.SIGKILL)
    wait_until("our devices are back", lambda: agent.ready() and allocatable_ids(node, GPU) == shown)
    wait_allocatable(api, node, GPU, 2)


@pytest.mark.parametrize("theirs", ["registry", "register"])
def test_a_foreign_plugin_that_was_there_first_and_stays_makes_nothing_flap(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent, theirs: str
) -> None:
    foreign = lasting_plugin(node, theirs)
    try:
        wait_allocatable(api, node, GPU, 3)
        pods.run(simple("guest", resources={GPU: 1}))
        agent = run_agent(configuration("l4-2"))
        shown = known_devices(node, 2)
        wait_allocatable(api, node, GPU, 2)
        # Long enough for every look that an agent takes after its registration.
        deadline = time.monotonic() + 2 * LOOKS
        while time.monotonic() < deadline:
            assert allocatable_ids(node, GPU) == shown
            time.sleep(0.05)
        assert agent.ready()
        assert foreign_events(agent) == []
        assert phase(pods.get("guest")) == "Running"
        pods.run(simple("user", resources={GPU: 1}))
        assert set(devices_of(node, "user")) < set(shown)
    finally:
        foreign.end(signal.SIGKILL)
    # Kubelets up to 1.36 disconnect us at its end; by the registry they forget it by its name, which is ours as well.
    wait_until("our devices are there", lambda: agent.ready() and allocatable_ids(node, GPU) == shown)
    wait_allocatable(api, node, GPU, 2)


def lasting_plugin(node: RigNode, way: str) -> Inside:
    """A foreign plugin that the kubelet keeps.

    Kubelets up to 1.36 that forget a socket of the test before disconnect whoever serves its resource by then; they
    look every second. A plugin that registered is not asked again, so another one is started.
    """
    for _ in range(10):
        foreign = foreign_plugin(node, way, *STRANGE)
        wait_until("the other plugin serves", partial(_serves, foreign), alive=foreign.died)
        if _holds(lambda: allocatable_ids(node, GPU) == list(STRANGE), within=10.0, during=1.5):
            return foreign
        foreign.end(signal.SIGKILL)
    raise AssertionError("the kubelet kept none of ten foreign plugins")


def _serves(plugin: Inside) -> bool:
    return SERVES in plugin.output


def _holds(condition: Callable[[], bool], *, within: float, during: float) -> bool:
    """Whether a condition comes true in time and then stays true, in seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    deadline = time.monotonic() + during
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.05)
    return True


def known_devices(node: RigNode, count: int) -> list[str]:
    """The ids that the kubelet has of the resource, once none of them is strange."""
    wait_until(
        f"the kubelet knows {count} devices",
        lambda: len(found := allocatable_ids(node, GPU)) == count and not set(found) & set(STRANGE),
    )
    return allocatable_ids(node, GPU)


def wait_named(agent: NodeAgent, socket: str) -> None:
    """Return when an event names the other plugin, once, and the status says that the resource is contested."""
    began = time.monotonic()
    wait_until("the agent has seen it", lambda: bool(foreign_events(agent)))
    print(f"named {time.monotonic() - began:.2f} s after the kubelet had its devices")
    assert foreign_events(agent) == [
        f"{GPU}: another plugin serves it at {socket}; remove that plugin, ostler waits meanwhile"
    ]

    def is_contested() -> bool:
        status = agent.ask("status")
        return not status.get("ready") and "contested" in " ".join(status.get("reasons", []))

    wait_until("the agent is not ready", is_contested)


def foreign_events(agent: NodeAgent) -> list[str]:
    """What the agent told people of other plugins."""
    return [event["message"] for event in agent.ask("status").get("events", []) if event["reason"] == "ForeignPlugin"]
