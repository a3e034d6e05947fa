"""The agent restarted, killed and replaced while pods use devices."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from types import TracebackType

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.rig.agent import allocatable, configuration, wait_allocatable
from tests.cluster.rig.api import ApiRefused, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids, devices_of
from tests.cluster.rig.pods import RigPods, phase, simple
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"


class Polling:
    """Every value of ``ask`` from the beginning to the end, asked some fifty times a second.

    The kubelet takes a hundred questions a second of all that ask; a gap of a millisecond may be missed, and where
    several rounds are run it is not.
    """

    def __init__(self, ask: Callable[[], int]) -> None:
        self.seen: set[int] = set()
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.015):
            self.seen.add(self._ask())

    def __enter__(self) -> Polling:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


class _Changes(Polling):
    """How many devices the Node object offered, at every change of it."""

    def __init__(self, api: RigApi, node: RigNode) -> None:
        super().__init__(int)
        self._api = api
        self._node = node

    def _run(self) -> None:
        while not self._over.is_set():
            selected = {"fieldSelector": f"metadata.name={self._node.name}"}
            # A watch begins with the object as it is, so that nothing falls between two of them.
            with suppress(OSError, HTTPException, ApiRefused):
                for _, found in self._api.watch("/api/v1/nodes", timeout=2.0, **selected):
                    self.seen.add(allocatable(found, GPU))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_pods_keep_their_devices_when_the_agent_restarts(
    number: signal.Signals, api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
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
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
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
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    document = configuration("h100-sxm-8")
    old = run_agent(document)
    wait_allocatable(api, node, GPU, 8)
    pods.run(simple("before", resources={GPU: 1}))
    held = devices_of(node, "before")
    new = run_agent(document, "ostler-new", start=False)
    process = new.spawn()
    wait_until("the new one is standby", lambda: "standby" in process.output, alive=process.died)

    with Polling(lambda: len(allocatable_ids(node, GPU))) as healthy, _Changes(api, node) as offered:
        old.process.send(signal.SIGTERM)
        # Some in the very moment of the change, the others as long as the old one is still there.
        names = [pods.create(simple(f"at-once-{number}", resources={GPU: 1})) for number in range(3)]
        while old.process.living and len(names) < 7:
            names.append(pods.create(simple(f"during-{len(names)}", resources={GPU: 1})))
            pods.wait_phase(names[-1], "Running")
        for name in names:
            pods.wait_phase(name, "Running")
        wait_until("the old one has ended", lambda: not old.process.living)
        wait_until("the new one is ready", new.ready, alive=process.died)

    assert old.process.wait() == 0
    assert "handed over" in old.process.output
    assert new.ask("status")["role"] == "active"
    assert healthy.seen == {8}, "the kubelet never had less"
    assert offered.seen <= {8}, "the scheduler never saw less"
    assert devices_of(node, "before") == held
    assert phase(pods.get("before")) == "Running"
    used = [id_ for name in ("before", *names) for id_ in devices_of(node, name)]
    assert len(used) == len(set(used)) == 1 + len(names)


def test_a_pod_that_ends_while_no_agent_runs_leaves_its_device_free(
    api: RigApi, node: RigNode, pods: RigPods, run_agent: RunAgent
) -> None:
    agent = run_agent(configuration("l4-2"))
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("all", resources={GPU: 2}))
    agent.stop(signal.SIGKILL)
    pods.end("all")
    agent.start()
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("all-again", resources={GPU: 2}))
    assert len(devices_of(node, "all-again")) == 2
