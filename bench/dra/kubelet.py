"""The DRA side of a kubelet reduced to what is measured: it finds drivers in its registry and hands claims to them.

The agent and the floor meet the same one, in the benchmark's own process. Unlike a real kubelet, which looks once a
second, it looks as soon as something appears. Claims are as a scheduler leaves them, allocated and reserved for a pod;
the benchmark chooses their devices. Times are ``time.perf_counter`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import grpc.aio

from bench.dra.server import NODE
from bench.kubelet import LOCAL, WITHIN, NothingCame
from node.directories import DirectoryWatcher
from protos.dra.v1 import api_pb2 as dra
from protos.dra.v1 import api_pb2_grpc as dra_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc
from tests.cluster.dra.claims import CLAIMS, DRIVER, claim
from tests.cluster.rig.api import Object, RigApi

REGISTERS = "v1.DRAPlugin"
CLIENTS = 8
"""Threads that make claims."""


class DriverCallFailed(Exception):
    """A driver refused a claim."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A registered driver: when it had been told so, and calls to it."""

    at: float
    name: str
    channel: grpc.aio.Channel
    stub: dra_grpc.DRAPluginStub

    async def prepare(self, claim: AllocatedClaim) -> tuple[str, ...]:
        """The CDI devices of a claim's answer; raises ``DriverCallFailed``."""
        request = dra.NodePrepareResourcesRequest(claims=[_named(claim)])
        answer = await self.stub.NodePrepareResources(request)
        one = answer.claims[claim.uid]
        if one.error or not one.devices:
            raise DriverCallFailed(
                f"{self.name} does not prepare {claim.name}: {one.error or 'no device is in its answer'}"
            )
        return tuple(name for device in one.devices for name in device.cdi_device_ids)

    async def unprepare(self, claim: AllocatedClaim) -> None:
        """Release a claim; raises ``DriverCallFailed``."""
        request = dra.NodeUnprepareResourcesRequest(claims=[_named(claim)])
        answer = await self.stub.NodeUnprepareResources(request)
        if answer.claims[claim.uid].error:
            raise DriverCallFailed(f"{self.name} does not release {claim.name}: {answer.claims[claim.uid].error}")

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
                # A socket appears a moment before its driver listens.
                info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=WITHIN, wait_for_ready=True)
                if info.type != "DRAPlugin" or REGISTERS not in info.supported_versions:
                    return
                channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}", options=LOCAL)
                await stub.NotifyRegistrationStatus(api_pb2.RegistrationStatus(plugin_registered=True), timeout=WITHIN)
                driver = Driver(time.perf_counter(), info.name, channel, dra_grpc.DRAPluginStub(channel))
                await self._registered.put(driver)


def _named(claim: AllocatedClaim) -> dra.Claim:
    return dra.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim as a kubelet names it."""

    namespace: str
    name: str
    uid: str


class AllocatedClaims:
    """Makes claims, none of them twice."""

    def __init__(self, api: RigApi) -> None:
        self._api = api
        self._numbers = itertools.count()

    def allocated(self, devices: Sequence[str]) -> list[AllocatedClaim]:
        """A new claim for every one of these devices of the node's pool, in their order."""
        named = [(f"claim-{next(self._numbers)}", device) for device in devices]
        kept = self._api.kept()
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                return list(clients.map(lambda each: _made(kept, *each), named))
        finally:
            kept.close()


def _made(api: RigApi, name: str, device: str) -> AllocatedClaim:
    made = api.create(CLAIMS, claim(name))
    api.request("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status(name, device)})
    return AllocatedClaim("default", name, made["metadata"]["uid"])


def status(name: str, device: str) -> Object:
    """What scheduler and controllers write for one device and one pod."""
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    pod = {"resource": "pods", "name": f"pod-of-{name}", "uid": str(UUID(int=0))}
    return {"allocation": {"devices": {"results": [result]}}, "reservedFor": [pod]}
