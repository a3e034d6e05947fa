"""As much of a kubelet as a driver meets: it looks into its registry, asks, judges, and calls the newest instance.

Over real sockets, with the rules of the real one that the door depends on: an instance is known by its endpoint, calls
go to the newest one, and an instance whose registration socket is gone is dropped with its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from node.sockets import is_socket
from protos.dra.v1 import api_pb2 as dra
from protos.dra.v1 import api_pb2_grpc as dra_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc
from tests.waiting import background

LOCAL = (("grpc.use_local_subchannel_pool", 1),)
LOOK = 0.05
"""Seconds between two looks; the real kubelet takes 1."""


def channel(path: str | Path) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(f"unix:{path}", options=LOCAL)


class DoorKubelet:
    """Looks at ``registry`` while ``running`` does; ``verdict`` is what it says to whoever it asked, empty: taken."""

    def __init__(self, registry: Path) -> None:
        self.verdict = ""
        self.infos: list[api_pb2.PluginInfo] = []
        self.instances: dict[Path, tuple[str, grpc.aio.Channel]] = {}
        """Registered instances by their registration socket, the newest last."""
        self._registry = registry
        self._refused: set[Path] = set()
        self._left: list[tuple[grpc.aio.Channel, asyncio.Task[None]]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DoorKubelet]:
        """Look until the end of the block."""
        try:
            async with background(self._run()):
                yield self
        finally:
            for connection, closing in self._left:
                closing.cancel()
                await connection.close()
            for _, connection in self.instances.values():
                await connection.close()
            self.instances.clear()

    @property
    def endpoints(self) -> list[str]:
        """Endpoints of the registered instances, the newest last."""
        return [endpoint for endpoint, _ in self.instances.values()]

    def known(self) -> bool:
        """Whether any instance is registered."""
        return bool(self.instances)

    def stub(self) -> dra_grpc.DRAPluginStub:
        """For calls to the newest instance."""
        return dra_grpc.DRAPluginStub(list(self.instances.values())[-1][1])

    async def prepare(self, *uids: str, timeout: float = 120.0) -> dra.NodePrepareResourcesResponse:
        """NodePrepareResources of the newest instance."""
        request = dra.NodePrepareResourcesRequest(claims=[named(uid) for uid in uids])
        answer: dra.NodePrepareResourcesResponse = await self.stub().NodePrepareResources(request, timeout=timeout)
        return answer

    async def unprepare(self, *uids: str, timeout: float = 120.0) -> dra.NodeUnprepareResourcesResponse:
        """NodeUnprepareResources of the newest instance."""
        request = dra.NodeUnprepareResourcesRequest(claims=[named(uid) for uid in uids])
        answer: dra.NodeUnprepareResourcesResponse = await self.stub().NodeUnprepareResources(request, timeout=timeout)
        return answer

    async def _run(self) -> None:
        while True:
            found = {path for path in self._registry.iterdir() if not path.name.startswith(".") and is_socket(path)}
            # Those that have come first, so that there is one to ask while the last one goes.
            for path in sorted(found - self.instances.keys() - self._refused):
                await self._register(path)
            for path in [path for path in self.instances if path not in found]:
                _, connection = self.instances.pop(path)
                # What was asked is answered by whom it was asked of.
                self._left.append((connection, asyncio.create_task(connection.close(120.0))))
            await asyncio.sleep(LOOK)

    async def _register(self, path: Path) -> None:
        # Whatever fails, because the instance ends meanwhile, is tried again at the next look.
        with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
            async with channel(path) as connection:
                stub = api_pb2_grpc.RegistrationStub(connection)
                info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=60)
                self.infos.append(info)
                if self.verdict:
                    self._refused.add(path)
                else:
                    endpoint = channel(info.endpoint)
                    await asyncio.wait_for(endpoint.channel_ready(), 5)
                    self.instances[path] = (info.endpoint, endpoint)
                status = api_pb2.RegistrationStatus(plugin_registered=not self.verdict, error=self.verdict)
                await stub.NotifyRegistrationStatus(status, timeout=60)


def named(uid: str) -> dra.Claim:
    """A claim as the kubelet names it."""
    return dra.Claim(namespace="default", name=f"claim-{uid}", uid=uid)
