"""Plugins of others for tests: they take a resource, by Register or by the kubelet's registry, and die when told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

GPU = "nvidia.com/gpu"
Stream = grpc.aio.UnaryStreamCall[api_pb2.Empty, api_pb2.ListAndWatchResponse]
LOCAL = (("grpc.use_local_subchannel_pool", 1),)


class Foreign(api_pb2_grpc.DevicePluginServicer, registration_pb2_grpc.RegistrationServicer):
    """Serves ``ids``; ``prefers``: it has GetPreferredAllocation, and refuses there what it does not have."""

    def __init__(self, *ids: str, prefers: bool = False) -> None:
        self.ids = ids
        self.prefers = prefers
        self.streams = 0
        """How often ListAndWatch was called."""
        self.asked = 0
        """How often it was asked which devices it prefers."""

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: object) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions(get_preferred_allocation_available=self.prefers)

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        self.streams += 1
        yield api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID=id_, health="Healthy") for id_ in self.ids])
        await asyncio.get_running_loop().create_future()

    async def GetPreferredAllocation(
        self,
        request: api_pb2.PreferredAllocationRequest,
        context: grpc.aio.ServicerContext[api_pb2.PreferredAllocationRequest, api_pb2.PreferredAllocationResponse],
    ) -> api_pb2.PreferredAllocationResponse:
        self.asked += 1
        if not self.prefers:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        asked: Sequence[str] = request.container_requests[0].available_deviceIDs
        if not set(asked) <= set(self.ids):
            await context.abort(grpc.StatusCode.UNKNOWN, f"unknown devices {asked}")
        return api_pb2.PreferredAllocationResponse(container_responses=[{"deviceIDs": asked}])

    async def Allocate(self, request: api_pb2.AllocateRequest, context: object) -> api_pb2.AllocateResponse:
        return api_pb2.AllocateResponse(container_responses=[{} for _ in request.container_requests])

    async def GetInfo(self, request: registration_pb2.InfoRequest, context: object) -> registration_pb2.PluginInfo:
        return registration_pb2.PluginInfo(type="DevicePlugin", name=GPU, supported_versions=["v1beta1"])

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: object
    ) -> registration_pb2.RegistrationStatusResponse:
        return registration_pb2.RegistrationStatusResponse()


@asynccontextmanager
async def registering(
    root: Path, plugin: Foreign, name: str = "nvidia-gpu.sock", resource: str = GPU
) -> AsyncIterator[Path]:
    """``plugin`` on a socket in the kubelet's folder, registered by Register; it dies with its context."""
    path = root / "device-plugins" / name
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{root}/device-plugins/kubelet.sock", options=LOCAL) as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(version="v1beta1", endpoint=name, resource_name=resource), timeout=60
        )
    try:
        yield path
    finally:
        await server.stop(None)


@asynccontextmanager
async def in_registry(root: Path, plugin: Foreign, name: str = "gpu-plugin.sock") -> AsyncIterator[Path]:
    """``plugin`` on a socket in the kubelet's registry, where the kubelet finds it; it dies with its context."""
    path = root / "plugins_registry" / name
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    registration_pb2_grpc.add_RegistrationServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield path
    finally:
        await server.stop(None)


@asynccontextmanager
async def person(path: Path) -> AsyncIterator[Stream]:
    """Somebody who looks at a plugin's list with a tool, and goes on looking."""
    async with grpc.aio.insecure_channel(f"unix:{path}", options=LOCAL) as channel:
        stream = api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty())
        await stream.read()
        yield stream
        stream.cancel()
