"""The floor: the least a device plugin in Python with grpc.aio can be, as a process of its own.

It knows its devices and its answer from the command line, registers, serves its list and answers Allocate, and does
nothing else: no NVML, no discovery, no health, no log. What the agent costs beyond it is what the agent itself costs.
Signal USR1 changes the health of the first device and sends the list.

Arguments: the kubelet's folder, device ids joined by commas, device node paths joined by commas, and the name of the
resource if it shall be another.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

RESOURCE = "bench.ostler.dev/floor"
Context = grpc.aio.ServicerContext[object, object]


class FloorService(api_pb2_grpc.DevicePluginServicer):
    def __init__(self, ids: list[str], paths: list[str]) -> None:
        self._ids = ids
        self._paths = paths
        self._first_healthy = True
        self._changed = asyncio.Event()

    def flip(self) -> None:
        self._first_healthy = not self._first_healthy
        self._changed.set()
        self._changed = asyncio.Event()

    async def GetDevicePluginOptions(  # noqa: N802  # the method names are gRPC's
        self, request: api_pb2.Empty, context: Context
    ) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(  # noqa: N802
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        while True:
            changed = self._changed
            healths = itertools.chain([self._first_healthy], itertools.repeat(True))
            yield api_pb2.ListAndWatchResponse(
                devices=[
                    api_pb2.Device(
                        ID=id_,
                        health="Healthy" if healthy else "Unhealthy",
                        topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=0)]),
                    )
                    for id_, healthy in zip(self._ids, healths, strict=False)
                ]
            )
            await changed.wait()

    async def Allocate(  # noqa: N802
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        return api_pb2.AllocateResponse(
            container_responses=[
                api_pb2.ContainerAllocateResponse(
                    envs={"NVIDIA_VISIBLE_DEVICES": ",".join(wanted.devices_ids)},
                    devices=[
                        api_pb2.DeviceSpec(container_path=path, host_path=path, permissions="rw")
                        for path in self._paths
                    ],
                )
                for wanted in request.container_requests
            ]
        )


async def serve(folder: str, ids: list[str], paths: list[str], resource: str) -> None:
    floor = FloorService(ids, paths)
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(floor, server)
    endpoint = f"floor-{os.getpid()}.sock"
    server.add_insecure_port(f"unix:{folder}/{endpoint}")
    await server.start()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, floor.flip)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with grpc.aio.insecure_channel(f"unix:{folder}/kubelet.sock") as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
        )
    await ended.wait()
    await server.stop(None)


if __name__ == "__main__":
    _, folder_argument, ids_argument, paths_argument, *name_argument = sys.argv
    given = [path for path in paths_argument.split(",") if path]
    asyncio.run(serve(folder_argument, ids_argument.split(","), given, *(name_argument or [RESOURCE])))
