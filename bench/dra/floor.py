"""The floor: the least a DRA driver in Python with grpc.aio can be that forgets nothing, as a process of its own.

It registers through the kubelet's registry; for a claim it asks the API server once, writes a record, a CDI file and
the record again, each so that it survives a power cut, and answers. It checks nothing, knows no devices, publishes no
slices. What the agent costs beyond it is what the agent itself costs.

Arguments: the kubelet's folder, a kubeconfig, and a folder for its files.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kube.bodies import object_at, text_at
from node.files import write_whole
from protos.dra.v1 import api_pb2 as dra
from protos.dra.v1 import api_pb2_grpc as dra_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    from kube.client import Client

NAME = "floor.bench.ostler.dev"
THREADS = 32
RECORD, SPEC = b"r" * 700, b"s" * 700
"""About as much as the agent writes for one GPU."""
Context = grpc.aio.ServicerContext[object, object]


class FloorDraService(dra_grpc.DRAPluginServicer, api_pb2_grpc.RegistrationServicer):
    def __init__(self, endpoint: str, kubeconfig: Path, folder: Path) -> None:
        self._endpoint = endpoint
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._client: asyncio.Future[Client] | None = None
        self._threads = ThreadPoolExecutor(THREADS)

    def connect(self) -> Client:
        """Load the client library; in a thread, once the kubelet has been answered."""
        from kube.client import Client
        from kube.kubeconfig import from_kubeconfig

        return Client(from_kubeconfig(self._kubeconfig), random=random.random, connections=THREADS)

    async def GetInfo(  # noqa: N802  # the methods' names are gRPC's
        self, request: api_pb2.InfoRequest, context: Context
    ) -> api_pb2.PluginInfo:
        return api_pb2.PluginInfo(
            type="DRAPlugin", name=NAME, endpoint=self._endpoint, supported_versions=["v1.DRAPlugin"]
        )

    async def NotifyRegistrationStatus(  # noqa: N802
        self, request: api_pb2.RegistrationStatus, context: Context
    ) -> api_pb2.RegistrationStatusResponse:
        self._client = asyncio.get_running_loop().run_in_executor(self._threads, self.connect)
        return api_pb2.RegistrationStatusResponse()

    async def NodePrepareResources(  # noqa: N802
        self, request: dra.NodePrepareResourcesRequest, context: Context
    ) -> dra.NodePrepareResourcesResponse:
        answer = dra.NodePrepareResourcesResponse()
        assert self._client is not None
        client = await self._client
        for claim in request.claims:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, self._prepare, client, claim)
            answer.claims[claim.uid].devices.add(
                request_names=[result["request"]],
                pool_name=result["pool"],
                device_name=result["device"],
                cdi_device_ids=[f"{NAME}/claim={claim.uid}"],
            )
        return answer

    async def NodeUnprepareResources(  # noqa: N802
        self, request: dra.NodeUnprepareResourcesRequest, context: Context
    ) -> dra.NodeUnprepareResourcesResponse:
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._release, claim.uid)
            answer.claims[claim.uid].SetInParent()
        return answer

    def _prepare(self, client: Client, claim: dra.Claim) -> dict[str, str]:
        path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        found = client.get(path)
        write_whole(self._record(claim.uid), RECORD)
        write_whole(self._spec(claim.uid), SPEC, 0o644)
        write_whole(self._record(claim.uid), RECORD)
        results = object_at(found, "status", "allocation", "devices")["results"]
        assert isinstance(results, list)
        return {key: text_at(results[0], key) for key in ("request", "pool", "device")}

    def _release(self, uid: str) -> None:
        self._spec(uid).unlink()
        self._record(uid).unlink()

    def _record(self, uid: str) -> Path:
        return self._folder / "claims" / f"{uid}.json"

    def _spec(self, uid: str) -> Path:
        return self._folder / "cdi" / f"{NAME}_{uid}.json"


async def serve(kubelet: Path, kubeconfig: Path, folder: Path) -> None:
    for name in ("claims", "cdi"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    endpoint = kubelet / "plugins" / f"floor-{os.getpid()}.sock"
    registration = kubelet / "plugins_registry" / f"floor-{os.getpid()}-reg.sock"
    floor = FloorDraService(str(endpoint), kubeconfig, folder)
    servers = (grpc.aio.server(), grpc.aio.server())
    dra_grpc.add_DRAPluginServicer_to_server(floor, servers[0])
    api_pb2_grpc.add_RegistrationServicer_to_server(floor, servers[1])
    for server, path in zip(servers, (endpoint, registration.with_suffix(".new")), strict=True):
        server.add_insecure_port(f"unix:{path}")
        await server.start()
    # The kubelet takes whatever ends in .sock at once, listening or not.
    registration.with_suffix(".new").rename(registration)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    registration.unlink()
    for server in servers:
        await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve(*map(Path, sys.argv[1:])))
