"""A small device plugin as others write them, run as a program: ``/var/lib/kubelet`` is built in.

Its devices are ``dev-0``, ``dev-1`` and so on, on NUMA node 0 and 1 in turn, and what a container gets names them. It
registers by the folder ``plugins_registry`` or by a Register call, and again when the kubelet has removed its socket.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # A test run starts it a hundred times; asyncio does without.
    sys.modules["ssl"] = None  # type: ignore[assignment]

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration
from protos.pluginregistration.v1 import api_pb2_grpc as registration_grpc

ROOT = Path("/var/lib/kubelet")
REFUSED = "the driver has lost this device"


class PlainPlugin(api_pb2_grpc.DevicePluginServicer, registration_grpc.RegistrationServicer):
    """Answers for ``resource``; it fails every Allocate (``refuse``), or never answers it (``hang``).

    ``flap``: the health of its first device changes all the time. ``end``: it ends soon after its first list,
    ``end_with_stream``: when the kubelet ends the stream of lists, to be started again by its DaemonSet.
    """

    def __init__(
        self,
        resource: str,
        count: int,
        socket: Path,
        *,
        refuse: bool,
        hang: bool,
        flap: bool,
        end: bool,
        end_with_stream: bool,
    ) -> None:
        self._resource = resource
        self._socket = socket
        self._refuse = refuse
        self._hang = hang
        self._flap = flap
        self._ends = end
        self._ends_with_stream = end_with_stream
        self.ending = asyncio.Event()
        self._devices = [
            api_pb2.Device(
                ID=f"dev-{index}",
                health="Healthy",
                topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=index % 2)]),
            )
            for index in range(count)
        ]

    async def GetInfo(self, request: Any, context: Any) -> registration.PluginInfo:
        return registration.PluginInfo(
            type="DevicePlugin", name=self._resource, endpoint=str(self._socket), supported_versions=["v1beta1"]
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> registration.RegistrationStatusResponse:
        print(f"registered: {request.plugin_registered} {request.error}".strip(), flush=True)
        return registration.RegistrationStatusResponse()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        yield api_pb2.ListAndWatchResponse(devices=self._devices)
        if self._ends:
            asyncio.get_running_loop().call_later(0.1, os._exit, 7)
        while self._flap and not self.ending.is_set():
            await asyncio.sleep(0.05)
            device = self._devices[0]
            device.health = "Unhealthy" if device.health == "Healthy" else "Healthy"
            yield api_pb2.ListAndWatchResponse(devices=self._devices)
        try:
            await self.ending.wait()
        finally:
            if self._ends_with_stream and not self.ending.is_set():
                os._exit(1)

    async def Allocate(self, request: Any, context: Any) -> api_pb2.AllocateResponse:
        if self._hang:
            await asyncio.Event().wait()
        if self._refuse:
            await context.abort(grpc.StatusCode.INTERNAL, REFUSED)
        return api_pb2.AllocateResponse(
            container_responses=[
                api_pb2.ContainerAllocateResponse(
                    envs={"DEVICES": ",".join(sorted(each.devices_ids))},
                    devices=[
                        api_pb2.DeviceSpec(container_path=f"/dev/{id_}", host_path=f"/dev/{id_}", permissions="rw")
                        for id_ in sorted(each.devices_ids)
                    ],
                )
                for each in request.container_requests
            ]
        )


async def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--resource", default="plain.example/thing")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--door", choices=("register", "watcher"), default="register")
    parser.add_argument("--refuse", action="store_true")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--flap", action="store_true")
    parser.add_argument("--end", action="store_true")
    parser.add_argument("--end-with-stream", action="store_true")
    parser.add_argument("--socket", default="plain.sock")
    parser.add_argument("--more", action="append", default=[], help="further resources, one after the other")
    arguments = parser.parse_args()
    folder = ROOT / ("device-plugins" if arguments.door == "register" else "plugins_registry")
    socket = folder / arguments.socket
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(f"node {os.environ.get('NODE_NAME', '-')}", flush=True)
    plugin = PlainPlugin(
        arguments.resource,
        arguments.devices,
        socket,
        refuse=arguments.refuse,
        hang=arguments.hang,
        flap=arguments.flap,
        end=arguments.end,
        end_with_stream=arguments.end_with_stream,
    )
    while not ended.is_set():
        await _serve(plugin, arguments, socket, ended)
    print("ended on SIGTERM", file=sys.stderr, flush=True)


async def _serve(plugin: PlainPlugin, arguments: argparse.Namespace, socket: Path, ended: asyncio.Event) -> None:
    """Serve and register until the end or until the kubelet has removed the socket."""
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    registration_grpc.add_RegistrationServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    if arguments.door == "register":
        for resource in (arguments.resource, *arguments.more):
            await _register(resource, socket)
    # One that ends with its stream does not look at its socket, which the kubelet may remove before.
    while (arguments.end_with_stream or socket.exists()) and not ended.is_set():
        await asyncio.sleep(0.02)
    plugin.ending.set()
    await server.stop(1.0)
    plugin.ending.clear()


async def _register(resource: str, socket: Path) -> None:
    kubelet = ROOT / "device-plugins" / "kubelet.sock"
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{kubelet}", options=options) as channel:
        request = api_pb2.RegisterRequest(version="v1beta1", endpoint=socket.name, resource_name=resource)
        await api_pb2_grpc.RegistrationStub(channel).Register(request, wait_for_ready=True)
        print("registered by a call", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    # The interpreter would take longer to end than it served.
    os._exit(0)
