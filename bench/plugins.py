"""The two plugins that are measured, behind one face: the agent and the floor."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import grpc.aio

from bench.hardware import Hardware
from bench.kubelet import LOCAL, WITHIN, BareKubelet, NothingCame, Registered
from bench.process import Measured, ProcessFailed, agent_command, agent_folders
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc
from protos.deviceplugin.v1beta1 import api_pb2

BETWEEN_SCANS = 1.7
"""Seconds to leave between two changes.

The inventory scans twice a second at most, and once more when NVML's events are listened to anew, a second after a GPU
was lost.
"""


class MeasuredPlugin(ABC):
    """A plugin that is measured; one object is one start. ``async with`` starts and ends it."""

    def __init__(self, kubelet: BareKubelet, process: Measured) -> None:
        self.process = process
        self._kubelet = kubelet
        self._registered: Registered | None = None

    @property
    def registered(self) -> Registered:
        """Its registration."""
        assert self._registered is not None
        return self._registered

    async def start(self) -> None:
        """Start it and wait for its Register call; it is ended if that does not come."""
        await self.process.start()
        try:
            await self.wait_registered()
        except NothingCame as error:
            await self.process.stop()
            raise ProcessFailed(str(error), self.process.log) from error

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def wait_registered(self) -> None:
        """Wait for its Register call; raises ``ProcessFailed`` at once when it ends before."""
        self._registered = await self.process.until(self._kubelet.registration())

    @abstractmethod
    async def change(self) -> float:
        """Make one device unhealthy; the seconds until the kubelet has the list. It is healthy again afterwards."""

    async def stop(self) -> None:
        """End it."""
        try:
            await self.process.stop()
        finally:
            if self._registered is not None:
                await self._registered.close()


class FloorPlugin(MeasuredPlugin):
    """The bare plugin, with the agent's device ids and device nodes."""

    def __init__(self, kubelet: BareKubelet, log: Path, ids: Sequence[str], paths: Sequence[str]) -> None:
        command = [sys.executable, "-m", "bench.floor", str(kubelet.folder), ",".join(ids), ",".join(paths)]
        super().__init__(kubelet, Measured(command, {}, log))

    async def change(self) -> float:
        """By a signal, since nothing looks at hardware."""
        took = await self._flip(1)
        await self._flip(0)
        return took

    async def _flip(self, unhealthy: int) -> float:
        began = time.perf_counter()
        self.process.signal(signal.SIGUSR1)
        shown = await self.registered.list_where(lambda shown: shown.unhealthy == unhealthy, began)
        return shown.at - began


class AgentPlugin(MeasuredPlugin):
    """``ostler run`` on the benchmark's hardware; ``flags`` over the usual ones."""

    def __init__(
        self, kubelet: BareKubelet, hardware: Hardware, root: Path, name: str, flags: dict[str, str] | None = None
    ) -> None:
        self._hardware = hardware
        self._socket = root / "admin" / f"{name}.sock"
        settings = {
            **hardware.flags,
            **agent_folders(root, kubelet.folder, kubelet.registry, self._socket),
            **(flags or {}),
        }
        super().__init__(kubelet, Measured(agent_command(settings), hardware.environment, root / f"{name}.log"))

    async def start_standby(self) -> None:
        """Start it beside an active instance; returns when it waits."""
        await self.process.start()
        await self.logged("standby:")

    async def take_over_from(self, active: AgentPlugin) -> float:
        """End the active instance; the seconds from its SIGTERM to the Register call of this standby."""
        began = time.perf_counter()
        active.process.signal(signal.SIGTERM)
        await self.wait_registered()
        return self.registered.at - began

    async def logged(self, words: str) -> str:
        """The first line of its log with these words; raises ``NothingCame``."""
        return await eventually(lambda: _line(self.process.log, words), f"{words!r} in the agent's log")

    async def allocate(self, ids: Sequence[str]) -> api_pb2.AllocateResponse:
        """The whole answer for one container with these devices."""
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        answer: api_pb2.AllocateResponse = await self.registered.stub.Allocate(request, timeout=WITHIN)
        return answer

    async def rescan(self) -> None:
        """Have it look at the hardware once."""
        async with self._administered() as stub:
            await stub.Rescan(agent_pb2.RescanRequest(), timeout=WITHIN)

    async def change(self) -> float:
        """A GPU is lost in the stub NVML, and the agent is told to look."""
        async with self._administered() as stub:
            await asyncio.sleep(BETWEEN_SCANS)
            took = await self._see(stub, self._hardware.lose, 1)
            await asyncio.sleep(BETWEEN_SCANS)
            await self._see(stub, self._hardware.heal, 0)
        return took

    async def _see(self, stub: agent_pb2_grpc.AgentStub, happen: Callable[[], None], unhealthy: int) -> float:
        began = time.perf_counter()
        happen()
        answer = asyncio.ensure_future(stub.Rescan(agent_pb2.RescanRequest(), timeout=WITHIN))
        shown = await self.registered.list_where(lambda shown: shown.unhealthy == unhealthy, began)
        await answer
        return shown.at - began

    async def event(self, happen: Callable[[], None]) -> float:
        """A GPU is lost and ``happen`` makes the kernel say so; the seconds until the kubelet has the list."""
        await asyncio.sleep(BETWEEN_SCANS)
        began = time.perf_counter()
        self._hardware.lose()
        happen()
        shown = await self.registered.list_where(lambda shown: shown.unhealthy == 1, began)
        await asyncio.sleep(BETWEEN_SCANS)
        self._hardware.heal()
        happen()
        await self.registered.list_where(lambda shown: shown.unhealthy == 0, shown.at)
        return shown.at - began

    @asynccontextmanager
    async def _administered(self) -> AsyncIterator[agent_pb2_grpc.AgentStub]:
        """Its own service, connected before any clock runs: the connection is the benchmark's and not the agent's."""
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=LOCAL) as channel:
            stub = agent_pb2_grpc.AgentStub(channel)
            await stub.GetStatus(agent_pb2.GetStatusRequest(), timeout=WITHIN, wait_for_ready=True)
            yield stub


async def eventually(condition: Callable[[], str | None], what: str) -> str:
    """The first value that is not None; raises ``NothingCame`` with ``what``."""
    deadline = time.monotonic() + WITHIN
    while (value := condition()) is None:
        if time.monotonic() > deadline:
            raise NothingCame(f"not within {WITHIN:g} s: {what}")
        await asyncio.sleep(0.01)
    return value


def _line(log: Path, words: str) -> str | None:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line for line in lines if words in line), None)
