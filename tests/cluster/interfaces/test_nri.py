"""The NRI plugin alone on a real runtime: what it hears, what an error does, and coming back after either side."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.rig.api import RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import Inside, wait_until


class _Heard:
    """A recorder on the node, and the lines that it has written."""

    def __init__(self, node: RigNode) -> None:
        self._process = node.spawn("recorder", sys.executable, "-m", "tests.cluster.interfaces.recorder")
        self.wait("connected")

    @property
    def process(self) -> Inside:
        return self._process

    def lines(self, event: str, pod: str = "") -> list[dict[str, Any]]:
        """The events of this kind so far, of all pods or of one."""
        written = self._process.output
        whole = written[: written.rfind("\n") + 1].splitlines()
        found = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in found if line["event"] == event and line.get("pod", pod) in {pod, f"default/{pod}"}]

    def wait(self, event: str, pod: str = "", count: int = 1) -> dict[str, Any]:
        """The event of that number, once it is written."""
        wait_until(f"{event} {pod} is reported", lambda: len(self.lines(event, pod)) >= count, alive=self._process.died)
        return self.lines(event, pod)[count - 1]


@pytest.fixture
def heard(node: RigNode) -> Iterator[_Heard]:
    made = _Heard(node)
    yield made
    made.process.end(signal.SIGKILL)


def test_a_pod_is_reported_with_its_namespace_from_its_start_to_its_end(
    node: RigNode, pods: RigPods, heard: _Heard
) -> None:
    assert heard.lines("connected")[0]["runtime"].startswith("containerd ")
    pods.run(simple("plain"))
    pods.run(simple("hosted", hostNetwork=True))
    ran, hosted = heard.wait("run", "plain"), heard.wait("run", "hosted")
    assert ran["uid"] == pods.get("plain")["metadata"]["uid"]
    assert (ran["exists"], ran["host_network"]) == (True, False)
    assert (hosted["netns"], hosted["host_network"]) == ("", True)
    pods.delete("plain")
    stopped = heard.wait("stop", "plain")
    # The namespace is still there, so what is in it can be taken out.
    assert (stopped["netns"], stopped["exists"]) == (ran["netns"], True)


def test_an_error_fails_the_sandbox_and_the_pods_events_have_its_text(pods: RigPods, heard: _Heard) -> None:
    pods.create(simple("refused"))
    text = "ostler cannot start the sandbox of pod default/refused: there is no interface for it"
    pods.wait_event("refused", "FailedCreatePodSandBox", text)
    # What was begun for it can be undone at once, and not only when the kubelet forgets the sandbox.
    first = heard.wait("run", "refused")
    assert heard.wait("stop", "refused")["id"] == first["id"]
    assert not heard.lines("absent")


def test_a_slow_answer_is_an_error_and_not_the_end_of_the_connection(pods: RigPods, heard: _Heard) -> None:
    pods.create(simple("slow-3"))
    pods.wait_event("slow-3", "FailedCreatePodSandBox", "ostler continues, and a later attempt finds it done")
    done = heard.wait("ran", "slow-3")
    pods.wait_phase("slow-3", "Running")
    later = [line for line in heard.lines("run", "slow-3") if line["time"] > done["time"]]
    assert len(later) <= 1, "the next attempt finds it done"
    assert len(heard.lines("run", "slow-3")) >= 2
    assert not heard.lines("absent")


def test_a_plugin_that_does_not_answer_misses_a_pod_and_finds_it_when_it_comes_back(
    pods: RigPods, heard: _Heard
) -> None:
    heard.process.send(signal.SIGSTOP)
    try:
        # The runtime waits two seconds, drops the plugin and starts the pod: it fails open.
        pods.run(simple("unseen"))
    finally:
        heard.process.send(signal.SIGCONT)
    (unseen,) = (each for each in heard.wait("synchronize", count=2)["sandboxes"] if each["pod"] == "default/unseen")
    assert unseen["exists"]
    assert unseen["containers"] == {"main": True}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_after_a_restart_of_the_runtime_all_its_sandboxes_are_known(
    number: signal.Signals, api: RigApi, node: RigNode, pods: RigPods, heard: _Heard
) -> None:
    pods.run(simple("first"))
    node.stop_containerd(number)
    heard.wait("absent")
    node.start_containerd()
    listed = heard.wait("synchronize", count=2)["sandboxes"]
    uids = {each["metadata"]["uid"] for each in pods.all()}
    known = {each["pod"]: each["exists"] for each in listed if each["netns"] and each["uid"] in uids}
    assert known == {"default/first": True}
    node.wait_ready(api)
    pods.run(simple("second"))
    assert heard.wait("run", "second")["exists"]
