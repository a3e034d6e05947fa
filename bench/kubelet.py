"""A kubelet reduced to what is measured: it takes a registration, dials back, follows the device list, and says so.

Both plugins meet the same one, in the benchmark's own process, so that what it costs is in both figures. Times are
``time.perf_counter`` seconds, taken at once when a call or a message arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.podresources.v1 import api_pb2 as pod_resources
from protos.podresources.v1 import api_pb2_grpc as pod_resources_grpc

Context = grpc.aio.ServicerContext[object, object]
LOCAL = (("grpc.use_local_subchannel_pool", 1),)
WITHIN = 60.0
"""Seconds after which something that was waited for counts as not working: long, for machines with much else to do."""


class NothingCame(Exception):
    """What was waited for did not happen."""


@dataclass(frozen=True, slots=True)
class ShownList:
    """A device list as it arrived: health by device id."""

    at: float
    healths: dict[str, str]

    @property
    def unhealthy(self) -> int:
        return sum(health != "Healthy" for health in self.healths.values())


@dataclass(slots=True)
class Registered:
    """One registration: when Register came, a channel to the plugin's socket, and every list since."""

    at: float
    resource: str
    channel: grpc.aio.Channel
    stub: api_pb2_grpc.DevicePluginStub
    lists: list[ShownList] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    follower: asyncio.Task[None] | None = None

    async def list_where(self, condition: Callable[[ShownList], bool], after: float = 0.0) -> ShownList:
        """The first list after a time that meets a condition; raises ``NothingCame``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHIN):
                while True:
                    self.arrived.clear()
                    for shown in self.lists:
                        if shown.at >= after and condition(shown):
                            return shown
                    await self.arrived.wait()
        raise NothingCame(f"{self.resource}: the device list waited for did not come within {WITHIN:g} s")

    async def close(self) -> None:
        if self.follower is not None:
            self.follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.follower
        await self.channel.close()


class BareKubelet(api_pb2_grpc.RegistrationServicer, pod_resources_grpc.PodResourcesListerServicer):
    """Serves ``kubelet.sock`` in ``folder``, and pod resources beside that folder; use it with ``async with``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = folder.parent / "registry"
        """Where an agent has to look for this kubelet's other folders; nobody looks at what it puts there."""
        self.pods: dict[str, tuple[str, str]] = {}
        """The resource and the device id that pods of the namespace ``default`` have."""
        self._followed: list[Registered] = []
        self._registrations: asyncio.Queue[Registered] = asyncio.Queue()
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        pod_resources_grpc.add_PodResourcesListerServicer_to_server(self, self._server)

    async def __aenter__(self) -> BareKubelet:
        pods = self.folder.parent / "pod-resources"
        for folder in (self.folder, pods):
            folder.mkdir(parents=True, exist_ok=True)
            self._server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop(None)

    async def Register(  # noqa: N802  # the method's name is gRPC's
        self, request: api_pb2.RegisterRequest, context: Context
    ) -> api_pb2.Empty:
        at = time.perf_counter()
        channel = grpc.aio.insecure_channel(f"unix:{self.folder}/{request.endpoint}", options=LOCAL)
        registered = Registered(at, request.resource_name, channel, api_pb2_grpc.DevicePluginStub(channel))
        registered.follower = asyncio.create_task(self._follow(registered))
        self._registrations.put_nowait(registered)
        return api_pb2.Empty()

    async def List(  # noqa: N802
        self, request: pod_resources.ListPodResourcesRequest, context: Context
    ) -> pod_resources.ListPodResourcesResponse:
        """The pods of ``pods``: who calls Allocate here is none."""
        answer = pod_resources.ListPodResourcesResponse()
        for name, (resource, id_) in self.pods.items():
            container = answer.pod_resources.add(name=name, namespace="default").containers.add(name="main")
            container.devices.add(resource_name=resource, device_ids=[id_])
        return answer

    async def GetAllocatableResources(  # noqa: N802
        self, request: pod_resources.AllocatableResourcesRequest, context: Context
    ) -> pod_resources.AllocatableResourcesResponse:
        """Every healthy device of the plugins that are there, each by itself as a kubelet does it."""
        answer = pod_resources.AllocatableResourcesResponse()
        for registered in self._followed:
            newest = registered.lists[-1].healths if registered.lists else {}
            for id_, health in newest.items():
                if health == "Healthy":
                    answer.devices.add(resource_name=registered.resource, device_ids=[id_])
        return answer

    async def _follow(self, registered: Registered) -> None:
        self._followed.append(registered)
        # The plugin ends its stream when it ends; what is missing then is told by whoever waits for a list.
        try:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for message in registered.stub.ListAndWatch(api_pb2.Empty()):
                    healths = {device.ID: device.health for device in message.devices}
                    registered.lists.append(ShownList(time.perf_counter(), healths))
                    registered.arrived.set()
        finally:
            self._followed.remove(registered)

    async def registration(self) -> Registered:
        """The next registration; raises ``NothingCame``."""
        try:
            return await asyncio.wait_for(self._registrations.get(), WITHIN)
        except TimeoutError as error:
            raise NothingCame(f"nothing registered within {WITHIN:g} s") from error
