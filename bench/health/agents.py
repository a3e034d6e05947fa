"""The measured agent, ``ostler run`` on described hardware, with a kubelet and perhaps the API server's stand-in.

The stand-in runs in this process and tells when a taint is in a slice, and how often slices were written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc.aio

from bench.kubelet import LOCAL, WITHIN, BareKubelet, NothingCame, Registered
from bench.process import Measured, ProcessFailed, agent_command, agent_folders
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc
from sandbox.apiserver.server import ApiServer

NODE = "node-1"
Resource = Mapping[str, Any]
"""A rule as the configuration's ``resources`` have it."""


@dataclass(frozen=True, slots=True)
class DescribedHardware:
    """What makes the agent see some hardware: settings and environment."""

    flags: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class MeasuredAgent:
    """One start below ``root`` with these ``resources``; ``async with`` starts and ends it.

    It is started once the kubelet has been told of every resource of the plugin door, and live hardware is listened to.
    """

    def __init__(
        self,
        kubelet: BareKubelet,
        hardware: DescribedHardware,
        root: Path,
        resources: Sequence[Resource],
        kubeconfig: Path | None = None,
    ) -> None:
        root.mkdir()
        self._kubelet = kubelet
        self._socket = root / "agent.sock"
        self._awaited = {str(each["name"]) for each in resources if each.get("door") != "dra"}
        self._registered: dict[str, Registered] = {}
        configuration = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": list(resources)}
        (root / "config.yaml").write_text(json.dumps(configuration, indent=1))
        kubelet.registry.mkdir(exist_ok=True)
        settings = {
            "--config": str(root / "config.yaml"),
            "--node-name": NODE,
            **agent_folders(root, kubelet.folder, kubelet.registry, self._socket),
            **({"--kubeconfig": str(kubeconfig)} if kubeconfig is not None else {}),
            **hardware.flags,
        }
        self.process = Measured(agent_command(settings), hardware.environment, root / "agent.log")

    def lists(self, resource: str) -> Registered:
        """The lists of a resource."""
        return self._registered[resource]

    async def __aenter__(self) -> Self:
        await self.process.start()
        try:
            async with asyncio.timeout(WITHIN):
                while self._awaited - self._registered.keys():
                    registered = await self._kubelet.registration()
                    self._registered[registered.resource] = registered
                await self._listening()
        except (NothingCame, TimeoutError) as error:
            await self.__aexit__()
            raise ProcessFailed(f"the agent is not ready within {WITHIN:g} s ({error})", self.process.log) from error
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.process.stop()
        finally:
            for registered in self._registered.values():
                await registered.close()

    async def _listening(self) -> None:
        """Wait until the agent says that it listens to events of hardware."""
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=LOCAL) as channel:
            stub = agent_pb2_grpc.AgentStub(channel)
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    status = await stub.GetStatus(agent_pb2.GetStatusRequest(), timeout=WITHIN, wait_for_ready=True)
                    if any(each.name == "events" and each.detail.startswith("from ") for each in status.sources):
                        return
                await asyncio.sleep(0.05)


class StandInSlices:
    """What somebody sees who watches the server; use it with ``with``. Times are ``time.perf_counter``."""

    def __init__(self, kubeconfig: Path) -> None:
        self._server = ApiServer()
        self.kubeconfig = kubeconfig

    def __enter__(self) -> StandInSlices:
        self._server.start()
        self._server.kubeconfig(self.kubeconfig)
        self._server.store.create("nodes", {"metadata": {"name": NODE}})
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    async def published(self, count: int) -> None:
        """Wait until so many devices are shown without a taint; raises ``NothingCame``."""
        await self._until(f"{count} devices without taint", lambda: self._bare() >= count)

    async def tainted(self, count: int) -> float:
        """When so many devices had a taint; raises ``NothingCame``."""
        return await self._until(f"{count} tainted devices", lambda: self._tainted() >= count)

    @property
    def writes(self) -> int:
        """How many writes of slices were asked for."""
        return len(self._server.requests.writes("resourceslices"))

    def _bare(self) -> int:
        return sum(1 for device in self._devices() if not device.get("taints"))

    def _tainted(self) -> int:
        return sum(1 for device in self._devices() if device.get("taints"))

    def _devices(self) -> list[dict[str, Any]]:
        found = self._server.store.list("resourceslices")
        return [device for each in found for device in each["spec"].get("devices", ())]

    async def _until(self, what: str, condition: Callable[[], bool]) -> float:
        return await asyncio.to_thread(self._wait, what, condition)

    def _wait(self, what: str, condition: Callable[[], bool]) -> float:
        deadline = time.monotonic() + WITHIN
        version = self._server.store.version
        while True:
            at = time.perf_counter()
            if condition():
                return at
            left = deadline - time.monotonic()
            if left <= 0:
                raise NothingCame(f"not within {WITHIN:g} s: {what}")
            version = self._server.store.wait(version, left)
