"""A node in a box: an embedded kubelet and the agent's own process, in one temporary folder.

Nothing outside that folder is touched, so it runs on any laptop and several of them run side by side.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from google.protobuf.json_format import MessageToDict

from protos.agent.v1alpha1 import agent_pb2
from sandbox.hardware import RecordedHardware
from sandbox.kubelet.allocation import Order
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Admission, Container, Pod
from sandbox.process import AgentProcess

REGISTRATION_TIMEOUT = 20.0
"""Seconds until every resource must be registered: the kubelet looks every second, Register is tried after five."""


@dataclass(frozen=True, slots=True)
class Given:
    """A pod that asked for devices: the verdict, and what its container would get (field names are the API's).

    ``asked``: how many of each resource.
    """

    pod: str
    asked: Mapping[str, int]
    admission: Admission
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


class SandboxNode:
    """One node; ``recorded`` None means this machine's own devices. Use it with ``async with``.

    ``arguments`` and ``flags`` are added to the agent's; ``configuration``: text of a file that is given to it as
    ``--config``. ``reconcile_interval``: seconds between the kubelet's looks; ``order``: how it orders a container's
    resources. Raises RecordingError.
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
    ) -> None:
        # Short, because sockets' paths may have 107 bytes only.
        self.root = Path(tempfile.mkdtemp(prefix="ostler-", dir="/tmp"))
        self.kubelet = Kubelet(self.root / "kubelet", reconcile_interval=reconcile_interval, order=order)
        try:
            self.hardware = RecordedHardware(recorded, self.root / "node.yaml") if recorded is not None else None
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        self.log = self.root / "agent.log"
        if configuration is not None:
            (self.root / "ostler.yaml").write_text(configuration, encoding="utf-8")
            arguments = ("--config", str(self.root / "ostler.yaml"), *arguments)
        self.agent = AgentProcess({**self._flags(), **(flags or {})}, arguments=arguments, log=self.log)
        self._pods = itertools.count(1)

    def _flags(self) -> dict[str, str]:
        flags = {
            "--kubelet-device-plugin-dir": str(self.root / "kubelet" / "device-plugins"),
            "--kubelet-registry-dir": str(self.root / "kubelet" / "plugins_registry"),
            "--state-dir": str(self.root / "state"),
            "--socket": str(self.root / "ostler.sock"),
            "--cdi-dir": str(self.root / "cdi"),
            "--http": "off",
        }
        if self.hardware is not None:
            flags["--recorded"] = str(self.hardware.path)
        return flags

    async def __aenter__(self) -> SandboxNode:
        await self.kubelet.start()
        try:
            await self.agent.start()
        except BaseException:
            await self.agent.stop(signal.SIGKILL)
            await self.kubelet.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.agent.stop()
        await self.kubelet.stop()
        # After a failure the log is worth more than a clean temporary folder.
        if kind is None or issubclass(kind, (KeyboardInterrupt, asyncio.CancelledError)):
            shutil.rmtree(self.root, ignore_errors=True)

    async def restart_agent(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the agent by a signal and start it again."""
        await self.agent.stop(number)
        await self.agent.start()

    async def registered(self) -> agent_pb2.GetStatusResponse:
        """Wait until the agent is ready and the kubelet has its lists; the agent's status then.

        Raises TimeoutError with the reasons.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTRATION_TIMEOUT
        status = await self.agent.status()
        while not status.ready:
            if loop.time() > deadline:
                raise TimeoutError("; ".join(status.reasons))
            await asyncio.sleep(0.05)
            status = await self.agent.status()
        for resource in status.resources:
            await self.kubelet.wait_for(resource.name, healthy=resource.healthy, within=REGISTRATION_TIMEOUT)
        return status

    async def give(self, resource: str, count: int) -> Given:
        """Admit a pod with one container that asks for ``count`` of ``resource``."""
        return await self.give_together({resource: count})

    async def give_together(self, asked: Mapping[str, int]) -> Given:
        """Admit a pod with one container that asks for so many of each resource."""
        number = next(self._pods)
        pod = Pod(f"uid-{number}", f"pod-{number}", containers=(Container("main", limits=dict(asked)),))
        admission = await self.kubelet.admit(pod)
        response: Mapping[str, object] = {}
        if admission.admitted:
            options = await self.kubelet.run_options(pod, "main")
            response = asdict(options) if options is not None else {}
            response = {key: value for key, value in response.items() if value}
        return Given(pod.name, asked, admission, response)

    def end(self, pod: str) -> None:
        """End the pod of that name, so that its devices are free again."""
        self.kubelet.terminate(f"uid-{pod.removeprefix('pod-')}")

    async def devices(self) -> list[dict[str, object]]:
        """Every device as plain data."""
        answer = await self.agent.devices()
        return [MessageToDict(device, preserving_proto_field_name=True) for device in answer.devices]
