"""The DRA side of a kubelet reduced to what is measured: it finds drivers in its registry and dials them.

The agent and the floor meet the same one, in the benchmark's own process. Unlike a real kubelet, which looks once a
second, it looks as soon as something appears. Times are ``time.perf_counter`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from bench.dra.claims import Claim
from bench.kubelet import LOCAL, WITHIN, NothingCame
from node.directories import DirectoryWatcher
from protos.dra.v1 import api_pb2 as dra
from protos.dra.v1 import api_pb2_grpc as dra_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

REGISTERS = "v1.DRAPlugin"


class CallFailed(Exception):
    """A driver refused a claim."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A registered driver: when it had been told so, and calls to it."""

    at: float
    name: str
    channel: grpc.aio.Channel
    stub: dra_grpc.DRAPluginStub

    async def prepare(self, claim: Claim) -> tuple[str, ...]:
        """The CDI devices of a claim's answer; raises ``CallFailed``."""
        request = dra.NodePrepareResourcesRequest(claims=[_named(claim)])
        answer = await self.stub.NodePrepareResources(request)
        one = answer.claims[claim.uid]
        if one.error or not one.devices:
            raise CallFailed(f"{self.name} does not prepare {claim.name}: {one.error or 'no device is in its answer'}")
        return tuple(name for device in one.devices for name in device.cdi_device_ids)

    async def unprepare(self, claim: Claim) -> None:
        """Release a claim; raises ``CallFailed``."""
        request = dra.NodeUnprepareResourcesRequest(claims=[_named(claim)])
        answer = await self.stub.NodeUnprepareResources(request)
        if answer.claims[claim.uid].error:
            raise CallFailed(f"{self.name} does not release {claim.name}: {answer.claims[claim.uid].error}")

    async def close(self) -> None:
        """Hang up."""
        await self.channel.close()


class DraKubelet:
    """Watches ``registry``; use it with ``async with``. ``root``: the kubelet's folder, of which it is one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = root / "plugins_registry"
        self._known: set[Path] = set()
        self._registering: set[asyncio.Task[None]] = set()
        self._registered: asyncio.Queue[Driver] = asyncio.Queue()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DraKubelet:
        self.registry.mkdir(parents=True)
        (self.root / "plugins").mkdir()
        self._watching = asyncio.create_task(DirectoryWatcher((self.registry,), self._look).run())
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in (self._watching, *self._registering):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def driver(self) -> Driver:
        """The next driver that registers; raises ``NothingCame``."""
        try:
            return await asyncio.wait_for(self._registered.get(), WITHIN)
        except TimeoutError as error:
            raise NothingCame(f"no DRA driver registered within {WITHIN:g} s") from error

    def _look(self) -> None:
        found = {path for path in self.registry.iterdir() if path.suffix == ".sock" and not path.name.startswith(".")}
        for path in found - self._known:
            task = asyncio.create_task(self._register(path))
            self._registering.add(task)
            task.add_done_callback(self._registering.discard)
        self._known = found

    async def _register(self, path: Path) -> None:
        # Who ends while it registers is missed by whoever waits for it, who says so.
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with grpc.aio.insecure_channel(f"unix:{path}", options=LOCAL) as registration:
                stub = api_pb2_grpc.RegistrationStub(registration)
                info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=WITHIN)
                if info.type != "DRAPlugin" or REGISTERS not in info.supported_versions:
                    return
                channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}", options=LOCAL)
                await stub.NotifyRegistrationStatus(api_pb2.RegistrationStatus(plugin_registered=True), timeout=WITHIN)
                driver = Driver(time.perf_counter(), info.name, channel, dra_grpc.DRAPluginStub(channel))
                await self._registered.put(driver)


def _named(claim: Claim) -> dra.Claim:
    return dra.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)
