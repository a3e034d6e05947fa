"""The agent on a node of the cluster, from this checkout, as the process that a unit or a pod would run."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from ostler.cli.main import main
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids
from tests.cluster.rig.processes import PATIENCE, Inside, wait_until

RECORDED = Path(__file__).parents[3] / "sandbox" / "nodes"
CONFIGURATION = Path("/etc/ostler/config.yaml")
"""Inside the node."""
ANSWER = 10.0
"""Seconds for an agent to say how it is."""
OSTLER = (sys.executable, "-m", "ostler")
_ONE_OUTPUT = threading.Lock()
"""Standard output belongs to the whole process."""


def configuration(recorded: str, *resources: Object, **sections: Any) -> Object:
    """A configuration document that replays ``sandbox/nodes/RECORDED.yaml`` and offers ``resources``."""
    document = {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Config",
        "inventory": {"recorded": str(RECORDED / f"{recorded}.yaml")},
        "resources": list(resources),
        **sections,
    }
    if not resources:
        # What is not said has its default: rules for every GPU.
        del document["resources"]
    return document


class NodeAgent:
    """One ``ostler run`` on ``node``; several may be made, and one of them is active.

    ``program``: the command that is ostler, or a test's own that does more.
    """

    def __init__(
        self,
        node: RigNode,
        document: Object,
        name: str = "ostler",
        arguments: Sequence[str] = (),
        program: Sequence[str] = OSTLER,
    ) -> None:
        self._node = node
        self._name = name
        self._arguments = arguments
        self._program = program
        self._process: Inside | None = None
        self.configure(document)

    def configure(self, document: Object) -> None:
        """Write the configuration; a running agent reads it at its next reload."""
        # Nodes share the machine's network: each serves at its own address, as the kubelets do.
        document = {"http": {"address": f"{self._node.address}:9410"}, **document}
        (self._node.folder / "etc-ostler" / CONFIGURATION.name).write_text(json.dumps(document, indent=1))

    @property
    def process(self) -> Inside:
        """The process that was started last."""
        assert self._process is not None, "the agent was not started"
        return self._process

    def spawn(self) -> Inside:
        """Start it and do not wait: a standby serves nothing before it has become active."""
        options = ["--config", str(CONFIGURATION), "--node-name", self._node.name, *self._arguments]
        self._process = self._node.spawn(self._name, *self._program, "run", *options)
        return self._process

    def start(self) -> NodeAgent:
        """Start it and return when every resource that has devices is registered with the kubelet."""
        process = self.spawn()
        wait_until("the agent is ready", self.ready, alive=process.died)
        return self

    def ready(self) -> bool:
        """Whether the active agent says so; asked here, since a command is a third of a second of a core."""
        with grpc.insecure_channel(f"unix:{self._socket}", options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            try:
                status = agent_pb2_grpc.AgentStub(channel).GetStatus(agent_pb2.GetStatusRequest(), timeout=ANSWER)
            except grpc.RpcError:
                return False
        return bool(status.ready)

    @property
    def _socket(self) -> Path:
        return self._node.folder / "run-ostler" / "ostler.sock"

    def ask(self, command: str) -> Any:
        """The agent's answer to an ``ostler`` command that shows one, as JSON; {} when nobody answers.

        The command runs here: a process is a third of a second of a core.
        """
        output, complaint = io.StringIO(), io.StringIO()
        with _ONE_OUTPUT, contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaint):
            main([command, "-o", "json", "--socket", str(self._socket)])
        # Without an agent some commands look at this machine's own devices, and say so.
        nobody = "no agent answers" in complaint.getvalue()
        return {} if nobody or not output.getvalue().strip() else json.loads(output.getvalue())

    def offered(self, resource: str) -> dict[str, Object]:
        """The devices that the agent offers under a resource's name, by the id that the kubelet knows them by."""
        devices = self.ask("devices").get("devices", [])
        return {device["offered_id"]: device for device in devices if device.get("resource") == resource}

    def command(self, *command: str) -> str:
        """Run an ``ostler`` command on the node; its output."""
        return self._node.run(*OSTLER, *command)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.end(number)


def forget(node: RigNode) -> None:
    """Remove configuration, state and CDI specs of the agents that have been on the node; none may run."""
    for folder in ("lib-ostler", "run-ostler", "etc-ostler", "cdi"):
        for entry in (node.folder / folder).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def allocatable(node: Object, resource: str) -> int:
    """How many devices of a resource a Node object offers to pods."""
    return _whole(node["status"].get("allocatable", {}).get(resource, "0"))


def capacity(node: Object, resource: str) -> int:
    """How many devices of a resource a Node object has, healthy or not."""
    return _whole(node["status"].get("capacity", {}).get(resource, "0"))


def _whole(quantity: str) -> int:
    """A whole number as Kubernetes writes it: 1000 is 1k."""
    return int(quantity.removesuffix("k")) * (1000 if quantity.endswith("k") else 1)


def wait_allocatable(api: RigApi, node: RigNode, resource: str, count: int, timeout: float = PATIENCE) -> Object:
    """The Node object as soon as the kubelet has exactly ``count`` healthy devices and the Node offers as many.

    The kubelet writes the Node every two seconds: it may still say what was true of an agent before.
    """

    def offered() -> Object:
        path, what = f"/api/v1/nodes/{node.name}", f"offers {count} {resource}"
        return api.wait(path, what, lambda one: allocatable(one, resource) == count, timeout)

    def has_them() -> bool:
        return len(allocatable_ids(node, resource)) == count

    # The Node first: the kubelet answers agents and tests together a hundred times a second.
    offered()
    wait_until(f"the kubelet of {node.name} has {count} {resource}", has_them, timeout)
    return offered()
