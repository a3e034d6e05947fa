"""A node in a box: an embedded kubelet and the agent's own process, in one temporary folder; a cluster, if asked for.

Nothing outside that folder is touched, so it runs on any laptop and several of them run side by side.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from google.protobuf.json_format import MessageToDict

from protos.agent.v1alpha1 import agent_pb2
from sandbox.apiserver.server import ApiServer
from sandbox.cluster.client import ClusterClient, KubeletApi
from sandbox.cluster.cluster import SandboxCluster
from sandbox.cluster.explaining import explained, fitted, pools_told
from sandbox.configuration import with_runtime
from sandbox.hardware import RecordedHardware
from sandbox.kubelet.allocation import Order
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod, PodAdmitResult
from sandbox.network import NotAllowed, PodNetworks, PortRelay, SandboxNetwork, release_pins
from sandbox.nri import NriRuntime
from sandbox.process import AgentProcess
from sandbox.temporary import SHORT, abandoned, locked
from sandbox.waits import NodeWaits

_PREFIX, _OWNER = "ostler-", ".ostler-node"
"""Of a node's folder, and the file in it that is locked while the node with its network namespaces lives."""
NODE_NAME = "sandbox"
"""Of the Node object, unless the agent is given another name."""


@dataclass(frozen=True, slots=True)
class PodResult:
    """A pod that asked for devices: the verdict, and what its container would get (field names are the API's).

    ``asked``: how many of each resource.
    """

    pod: str
    asked: Mapping[str, int]
    admission: PodAdmitResult
    response: Mapping[str, object]

    @property
    def devices(self) -> Mapping[str, tuple[str, ...]]:
        """The device ids of each resource, sorted as the kubelet chose them; empty when the pod was refused."""
        found = self.admission.devices.get("main", {}) if self.admission.admitted else {}
        return {resource: tuple(found.get(resource, ())) for resource in self.asked}

    @property
    def ids(self) -> tuple[str, ...]:
        """The device ids of all resources."""
        return tuple(each for ids in self.devices.values() for each in ids)


_ENDED = (KeyboardInterrupt, asyncio.CancelledError)
"""Raised where somebody ends the sandbox; anything else is a failure."""


class SandboxNode:
    """One node; ``recorded`` None means this machine's own devices. Use it with ``async with``.

    ``arguments`` and ``flags`` are added to the agent's; ``configuration``: text of a file that is given to it as
    ``--config``. ``reconcile_interval``: seconds between the kubelet's looks; ``order``: how it orders a container's
    resources; ``generation``: of which Kubernetes it is. ``cluster``: an API server and what a control plane does for
    claims; the agent then talks to it. ``network``: namespaces for the agent and the pods if they can be made; else
    ``unconnected`` says why not.
    Raises RecordingError.
    """

    def __init__(
        self,
        recorded: Path | None,
        *,
        arguments: Sequence[str] = (),
        flags: Mapping[str, str] | None = None,
        configuration: str | None = None,
        reconcile_interval: float = 1.0,
        order: Order = sorted,
        generation: Generation = "1.36",
        cluster: bool = False,
        network: bool = False,
    ) -> None:
        # Short, because sockets' paths may have 107 bytes only.
        if network:
            for left in abandoned(SHORT, _PREFIX, _OWNER):
                release_pins(left)
        self.root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHORT))
        self._lock = locked(self.root, _OWNER) if network else None
        self.server = ApiServer() if cluster else None
        name = (flags or {}).get("--node-name", NODE_NAME)
        client = ClusterClient(self.server.url) if self.server is not None else None
        dra = DraManagerSettings(KubeletApi(client, name) if client is not None else None)
        self.kubelet = Kubelet(
            self.root / "kubelet", generation=generation, reconcile_interval=reconcile_interval, order=order, dra=dra
        )
        self.cdi = self.root / "cdi"
        self.unconnected = ""
        """Why there is no ``network`` though there should be."""
        self.network = self._made_network() if network and self.server is not None else None
        # A machine that is busy with other nodes in boxes is no reason to drop the agent.
        self.runtime = NriRuntime(self.root / "nri.sock", request_timeout=30.0)
        networks = PodNetworks(self.network, self.runtime) if self.network is not None else None
        self.cluster = SandboxCluster(client, name, self.kubelet, [self.cdi], networks) if client is not None else None
        self._relay: PortRelay | None = None
        try:
            self.hardware = RecordedHardware(recorded, self.root / "node.yaml") if recorded is not None else None
        except BaseException:
            if self.network is not None:
                self.network.close()
            if self.server is not None:
                self.server.stop()
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        self.log = self.root / "agent.log"
        if configuration is not None and self.network is not None:
            configuration = with_runtime(configuration, self.root / "nri.sock")
        self.configuration = configuration
        if configuration is not None:
            (self.root / "ostler.yaml").write_text(configuration, encoding="utf-8")
            arguments = ("--config", str(self.root / "ostler.yaml"), *arguments)
        namespace = self.network.node.namespace if self.network is not None else None
        self.agent = AgentProcess(
            {**self._flags(), **(flags or {})}, arguments=arguments, log=self.log, namespace=namespace
        )
        self.waits = NodeWaits(self.agent, self.kubelet, self.cluster)
        """Waits until all have seen what the agent has changed."""
        self._node_name = name
        self._pods = itertools.count(1)
        self._uids: dict[str, str] = {}

    def _flags(self) -> dict[str, str]:
        flags = {
            "--kubelet-device-plugin-dir": str(self.root / "kubelet" / "device-plugins"),
            "--kubelet-registry-dir": str(self.root / "kubelet" / "plugins_registry"),
            "--state-dir": str(self.root / "state"),
            "--socket": str(self.root / "ostler.sock"),
            "--cdi-dir": str(self.cdi),
            "--http": "off",
        }
        if self.server is not None:
            kubeconfig = self.server.kubeconfig(self.root / "kubeconfig")
            flags |= {"--kubeconfig": str(kubeconfig), "--node-name": NODE_NAME}
        if self.hardware is not None:
            flags["--recorded"] = str(self.hardware.path)
        return flags

    def _made_network(self) -> SandboxNetwork | None:
        try:
            return SandboxNetwork()
        except NotAllowed as error:
            self.unconnected = str(error)
            return None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException as error:
            await self.agent.stop(signal.SIGKILL)
            await self._stop()
            if isinstance(error, _ENDED):
                shutil.rmtree(self.root, ignore_errors=True)
            raise
        return self

    async def _start(self) -> None:
        if self.server is not None and self.cluster is not None:
            self.server.start()
            await self.cluster.start()
            if self.network is not None:
                self._relay = PortRelay(self.network.node, urlsplit(self.server.url).port or 0)
                await self._relay.start()
                await self.runtime.start()
        await self.kubelet.start()
        await self.agent.start()

    async def _stop(self) -> None:
        await self.kubelet.stop()
        if self._relay is not None:
            await self._relay.stop()
            await self.runtime.stop()
        if self.network is not None:
            release_pins(self.root)
            self.network.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self.server is not None:
            self.server.stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.agent.stop()
        await self._stop()
        # After a failure the log is worth more than a clean temporary folder.
        if kind is None or issubclass(kind, _ENDED):
            shutil.rmtree(self.root, ignore_errors=True)

    def follow(self, agent: AgentProcess) -> None:
        """Have this agent, which runs or is about to, be the node's from now on; the former one has ended."""
        self.agent = agent
        self.waits = NodeWaits(agent, self.kubelet, self.cluster)

    async def restart_agent(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the agent by a signal and start it again."""
        await self.agent.stop(number)
        await self.agent.start()

    async def change_configuration(self, configuration: str) -> None:
        """Have the agent take another configuration; raises ``AgentCommandFailed``."""
        (self.root / "ostler.yaml").write_text(configuration, encoding="utf-8")
        await self.agent.command("reload")

    async def registered(self) -> agent_pb2.GetStatusResponse:
        """See ``NodeWaits.registered``."""
        return await self.waits.registered()

    async def give(self, resource: str, count: int) -> PodResult:
        """Admit a pod with one container that asks for ``count`` of ``resource``."""
        return await self.give_together({resource: count})

    async def give_together(self, asked: Mapping[str, int]) -> PodResult:
        """Admit a pod with one container that asks for that many of each resource."""
        name = f"pod-{next(self._pods)}"
        uid = self._uids[name] = self._bound(name, asked)
        pod = Pod(uid, name, containers=(Container("main", limits=dict(asked)),))
        admission = await self.kubelet.admit(pod)
        if not admission.admitted:
            self._forget(name)
            return PodResult(name, asked, admission, {})
        options = await self.kubelet.run_options(pod, "main")
        response = asdict(options) if options is not None else {}
        return PodResult(name, asked, admission, {key: value for key, value in response.items() if value})

    def end(self, pod: str) -> None:
        """End the pod of that name, so that its devices are free again."""
        self.kubelet.terminate(self._uids[pod])
        self._forget(pod)

    def _bound(self, pod: str, asked: Mapping[str, int]) -> str:
        """The UID of a new pod; an API server, if there is one, has that pod as one that the scheduler has bound."""
        if self.server is None:
            return f"uid-{pod.removeprefix('pod-')}"
        main = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"limits": dict(asked)}}
        spec = {"nodeName": self._node_name, "containers": [main]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}
        return str(self.server.store.create("pods", body)["metadata"]["uid"])

    def _forget(self, pod: str) -> None:
        del self._uids[pod]
        if self.server is not None:
            self.server.store.delete("pods", pod, options={"gracePeriodSeconds": 0})

    async def over(self, pod: str) -> None:
        """End the pod of that name and wait until what it had is offered again; raises TimeoutError."""
        if not (await self.agent.status()).HasField("dra"):
            # With one door the kubelet decides, and it may allocate the devices again at once.
            self.end(pod)
            return
        await self.waits.noticed(pod)
        self.end(pod)
        await self.waits.freed(pod)

    async def devices(self) -> list[dict[str, object]]:
        """Every device as plain data; ``published``: how its slice has it, for one that is offered through DRA."""
        answer = await self.agent.devices()
        slices = await self.agent.slices()
        pools = slices.pools if slices is not None else ()
        states = {device.name: device.state for pool in pools for device in pool.devices}
        return [
            MessageToDict(device, preserving_proto_field_name=True)
            | ({"published": states[device.name]} if device.name in states else {})
            for device in answer.devices
        ]

    async def explained(self, pod: str, namespace: str) -> str:
        """The output of ``ostler explain`` for a pod."""
        return await explained(self.root / "kubeconfig", pod, namespace)

    async def fitted(self, file: str, copies: str) -> str:
        """The output of ``ostler fit`` for that many copies of a file's pods."""
        return await fitted(self.root / "kubeconfig", file, copies)

    async def pools(self, words: Sequence[str]) -> str:
        """The output of ``ostler pools`` with these words."""
        return await pools_told(self.root / "kubeconfig", words)
