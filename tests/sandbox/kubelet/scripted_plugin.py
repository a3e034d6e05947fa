"""A device plugin that does what a test tells it: any list, any answer, any misbehaviour, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


def device(device_id: str, health: str = "Healthy", nodes: Sequence[int] | None = None) -> api_pb2.Device:
    """A device of a list; ``nodes`` None: no topology message, empty: one without nodes."""
    topology = None if nodes is None else api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=node) for node in nodes])
    return api_pb2.Device(ID=device_id, health=health, topology=topology)


def devices(prefix: str, count: int, nodes: Sequence[int] | None = None) -> list[api_pb2.Device]:
    """``count`` healthy devices, named prefix0, prefix1, ..."""
    return [device(f"{prefix}{number}", nodes=nodes) for number in range(count)]


@dataclass
class PluginScript:
    """How the plugin answers; modes are those of the recorded scenarios, and ``hang``."""

    pre_start_required: bool = False
    preferred_available: bool = False
    options_error: str = ""
    preferred: str = "off"
    preferred_ids: tuple[str, ...] = ()
    allocate: str = "ok"
    pre_start: str = "ok"
    notify_error: str = ""
    notify_seconds: float = 0.0
    info: registration_pb2.PluginInfo | None = None
    info_seconds: float = 0.0


@dataclass
class ScriptedPlugin(api_pb2_grpc.DevicePluginServicer, registration_pb2_grpc.RegistrationServicer):
    """One instance on the socket ``path``; ``calls`` can be shared by several."""

    resource: str
    path: Path
    devices: list[api_pb2.Device] = field(default_factory=list)
    script: PluginScript = field(default_factory=PluginScript)
    calls: list[dict[str, Any]] = field(default_factory=list)
    notified: list[registration_pb2.RegistrationStatus] = field(default_factory=list)
    info_calls: int = 0
    streams: int = 0
    called: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._version = 0
        self._ending = False
        self._server: grpc.aio.Server | None = None

    async def start(self) -> ScriptedPlugin:
        """Serve both the device plugin and its registration on the socket."""
        self._server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        registration_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()
        return self

    async def stop(self) -> None:
        """End at once, calls and streams with it."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def update(self, devices: Sequence[api_pb2.Device]) -> None:
        """Send a new list to all streams."""
        async with self._changed:
            self.devices = list(devices)
            self._version += 1
            self._changed.notify_all()

    async def end_streams(self) -> None:
        """End all streams, with the server still up."""
        async with self._changed:
            self._ending = True
            self._changed.notify_all()

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: Context) -> api_pb2.DevicePluginOptions:
        if self.script.options_error == "hang":
            await asyncio.Event().wait()
        if self.script.options_error:
            await context.abort(grpc.StatusCode.UNKNOWN, self.script.options_error)
        return api_pb2.DevicePluginOptions(
            pre_start_required=self.script.pre_start_required,
            get_preferred_allocation_available=self.script.preferred_available,
        )

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        self.streams += 1
        sent = -1
        try:
            while True:
                async with self._changed:
                    while not self._ending and self._version == sent:
                        await self._changed.wait()
                    if self._ending:
                        return
                    sent = self._version
                    message = api_pb2.ListAndWatchResponse(devices=self.devices)
                yield message
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        wanted = request.container_requests[0]
        self._note(
            "GetPreferredAllocation",
            available=sorted(wanted.available_deviceIDs),
            must_include=sorted(wanted.must_include_deviceIDs),
            requests=len(request.container_requests),
            size=wanted.allocation_size,
        )
        mode = self.script.preferred
        if mode == "hang":
            await asyncio.Event().wait()
        if mode == "error":
            await context.abort(grpc.StatusCode.UNKNOWN, "no preference today")
        if mode == "empty":
            return api_pb2.PreferredAllocationResponse()
        ids = self._preferred(wanted, mode)
        return api_pb2.PreferredAllocationResponse(
            container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids)]
        )

    async def Allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        ids = sorted(request.container_requests[0].devices_ids)
        self._note("Allocate", ids=ids, requests=len(request.container_requests))
        mode = self.script.allocate
        if mode == "hang":
            await asyncio.Event().wait()
        if mode == "error":
            await context.abort(grpc.StatusCode.UNKNOWN, "cannot allocate today")
        if mode == "empty":
            return api_pb2.AllocateResponse()
        if mode == "bare":
            return api_pb2.AllocateResponse(container_responses=[api_pb2.ContainerAllocateResponse()])
        responses = [self._answer(ids)]
        if mode == "two":
            responses.append(api_pb2.ContainerAllocateResponse(envs={"SECOND": "1"}))
        return api_pb2.AllocateResponse(container_responses=responses)

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        self._note("PreStartContainer", ids=sorted(request.devices_ids))
        if self.script.pre_start == "hang":
            await asyncio.Event().wait()
        if self.script.pre_start == "error":
            await context.abort(grpc.StatusCode.UNKNOWN, "not ready")
        return api_pb2.PreStartContainerResponse()

    async def GetInfo(self, request: registration_pb2.InfoRequest, context: Context) -> registration_pb2.PluginInfo:
        self.info_calls += 1
        await asyncio.sleep(self.script.info_seconds)
        return self.script.info or registration_pb2.PluginInfo(
            type="DevicePlugin", name=self.resource, supported_versions=["v1beta1"]
        )

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        self.notified.append(request)
        await asyncio.sleep(self.script.notify_seconds)
        if self.script.notify_error:
            await context.abort(grpc.StatusCode.UNKNOWN, self.script.notify_error)
        return registration_pb2.RegistrationStatusResponse()

    def _note(self, rpc: str, **facts: object) -> None:
        self.calls.append({"resource": self.resource, "rpc": rpc, **facts})
        self.called.set()

    def _preferred(self, wanted: api_pb2.ContainerPreferredAllocationRequest, mode: str) -> list[str]:
        must = sorted(wanted.must_include_deviceIDs)
        rest = [name for name in sorted(wanted.available_deviceIDs, reverse=mode == "highest") if name not in must]
        ordered = must + rest
        size = wanted.allocation_size + {"short": -1, "long": 1}.get(mode, 0)
        if mode == "fixed":
            return list(self.script.preferred_ids)
        return (["no-such-device"] if mode == "bogus" else []) + ordered[:size]

    def _answer(self, ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        kind = self.resource.partition("/")[2]
        return api_pb2.ContainerAllocateResponse(
            envs={f"IDS_{kind}": ",".join(ids)},
            annotations={f"ids.{kind}": ",".join(ids)},
            mounts=[api_pb2.Mount(host_path=f"/opt/host/{kind}", container_path=f"/opt/{kind}", read_only=True)],
            devices=[
                api_pb2.DeviceSpec(host_path=f"/dev/host-{name}", container_path=f"/dev/{name}", permissions="rw")
                for name in ids
            ],
            cdi_devices=[api_pb2.CDIDevice(name=f"v.example/{kind}={name}") for name in ids],
        )


async def register(
    kubelet_dir: Path,
    resource: str,
    endpoint: str,
    *,
    version: str = "v1beta1",
    options: Mapping[str, bool] | None = None,
    timeout: float | None = None,
) -> str:
    """Call Register on the kubelet's socket in ``kubelet_dir``; the error's text, empty if it went well."""
    channel = grpc.aio.insecure_channel(
        f"unix:{kubelet_dir / 'kubelet.sock'}", options=[("grpc.use_local_subchannel_pool", 1)]
    )
    request = api_pb2.RegisterRequest(
        version=version, endpoint=endpoint, resource_name=resource, options=api_pb2.DevicePluginOptions(**options or {})
    )
    async with channel:
        try:
            await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=timeout, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNKNOWN:
                raise
            return error.details() or "?"
    return ""
