"""The kubelet's podresources services (v1 and v1alpha1): what every pod holds, and what the node could give.

One entry per (device, NUMA node), each with one id: clients have to group. Topology in List and Get is that of the
allocation's record, not of the plugin's current list. Ordinary init containers are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from protos.podresources.v1alpha1 import api_pb2 as alpha
from protos.podresources.v1alpha1 import api_pb2_grpc as alpha_grpc
from sandbox.kubelet.devicemanager import Manager
from sandbox.kubelet.dialling import listen_at
from sandbox.kubelet.dra.claims import ClaimCache, dynamic_resources
from sandbox.kubelet.metrics import KubeletMetrics
from sandbox.kubelet.pods import ActivePods, Container, Pod

Request = TypeVar("Request")
Response = TypeVar("Response")

RATE = 100.0
BURST = 10


class TokenBucket:
    """Requests that may pass: ``RATE`` a second on average, ``BURST`` at once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._since = clock()

    def allow(self) -> bool:
        """Whether one more request may pass now; it is counted if so."""
        now = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now - self._since) * RATE)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class PodResourcesService(api_pb2_grpc.PodResourcesListerServicer):
    """Answers from the managers' records."""

    def __init__(
        self,
        manager: Manager,
        claims: ClaimCache,
        pods: ActivePods,
        bucket: TokenBucket,
        metrics: KubeletMetrics,
        *,
        has_get: bool = True,
    ) -> None:
        self._manager = manager
        self._claims = claims
        self._pods = pods
        self._bucket = bucket
        self._metrics = metrics
        self._has_get = has_get

    async def List(  # noqa: N802 - the name is the protocol's
        self,
        request: api_pb2.ListPodResourcesRequest,
        context: grpc.aio.ServicerContext[api_pb2.ListPodResourcesRequest, api_pb2.ListPodResourcesResponse],
    ) -> api_pb2.ListPodResourcesResponse:
        """All active pods, up to 1.33 ended ones too; records of pods that are gone are dropped first."""
        await self._limit(context)
        self._metrics.requested("list")
        self._manager.collect_garbage()
        return api_pb2.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._pods.listed()])

    async def Get(  # noqa: N802 - the name is the protocol's
        self,
        request: api_pb2.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[api_pb2.GetPodResourcesRequest, api_pb2.GetPodResourcesResponse],
    ) -> api_pb2.GetPodResourcesResponse:
        """One active pod by namespace and name; UNKNOWN if there is none. Kubelets up to 1.26 do not have it."""
        if not self._has_get:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method Get for service v1.PodResourcesLister")
        await self._limit(context)
        self._metrics.requested("get")
        name, namespace = request.pod_name, request.pod_namespace
        found = [pod for pod in self._pods.by_uid.values() if (pod.name, pod.namespace) == (name, namespace)]
        if not found:
            self._metrics.errors_get.add("v1")
            await context.abort(grpc.StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")
        return api_pb2.GetPodResourcesResponse(pod_resources=self._pod(found[0]))

    async def GetAllocatableResources(  # noqa: N802 - the name is the protocol's
        self,
        request: api_pb2.AllocatableResourcesRequest,
        context: grpc.aio.ServicerContext[api_pb2.AllocatableResourcesRequest, api_pb2.AllocatableResourcesResponse],
    ) -> api_pb2.AllocatableResourcesResponse:
        """All healthy devices, in use or not; one with a topology message without nodes is missing, as in kubelets."""
        await self._limit(context)
        self._metrics.requested("get_allocatable")
        devices: list[api_pb2.ContainerDevices] = []
        for resource, ids in self._manager.allocatable_devices().items():
            for device_id, nodes in ids.items():
                devices += _entries(resource, device_id, nodes)
        return api_pb2.AllocatableResourcesResponse(devices=devices)

    async def list_alpha(self, context: grpc.aio.ServicerContext[Request, Response]) -> alpha.ListPodResourcesResponse:
        """List of v1alpha1: app containers only, without topology; it shares the limit of the others."""
        await self._limit(context)
        self._metrics.requested("list", "v1alpha1")
        self._manager.collect_garbage()
        pods = [self._alpha_pod(pod) for pod in self._pods.listed()]
        return alpha.ListPodResourcesResponse(pod_resources=pods)

    def _alpha_pod(self, pod: Pod) -> alpha.PodResources:
        containers = [
            alpha.ContainerResources(
                name=container.name,
                devices=[
                    alpha.ContainerDevices(resource_name=entry.resource_name, device_ids=entry.device_ids)
                    for entry in self._container(pod, container).devices
                ],
            )
            for container in pod.containers
            if container.kind == "app"
        ]
        return alpha.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _pod(self, pod: Pod) -> api_pb2.PodResources:
        shown = [container for container in pod.containers if container.kind == "sidecar"]
        shown += [container for container in pod.containers if container.kind == "app"]
        return api_pb2.PodResources(
            name=pod.name, namespace=pod.namespace, containers=[self._container(pod, container) for container in shown]
        )

    def _container(self, pod: Pod, container: Container) -> api_pb2.ContainerResources:
        devices: list[api_pb2.ContainerDevices] = []
        for resource, ids in self._manager.devices_of(pod.uid, container.name).items():
            for device_id, nodes in ids.items():
                devices += _entries(resource, device_id, nodes)
        dynamic = dynamic_resources(self._claims, pod, container)
        return api_pb2.ContainerResources(name=container.name, devices=devices, dynamic_resources=dynamic)

    async def _limit(self, context: grpc.aio.ServicerContext[Request, Response]) -> None:
        if not self._bucket.allow():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


class AlphaPodResourcesService(alpha_grpc.PodResourcesListerServicer):
    """v1alpha1, which has one method."""

    def __init__(self, service: PodResourcesService) -> None:
        self._service = service

    async def List(  # noqa: N802 - the name is the protocol's
        self,
        request: alpha.ListPodResourcesRequest,
        context: grpc.aio.ServicerContext[alpha.ListPodResourcesRequest, alpha.ListPodResourcesResponse],
    ) -> alpha.ListPodResourcesResponse:
        """See ``PodResourcesService.list_alpha``."""
        return await self._service.list_alpha(context)


async def pod_resources_server(socket: Path, service: PodResourcesService) -> grpc.aio.Server:
    """Serve podresources at ``socket``; raises OSError."""
    server = grpc.aio.server()
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(service, server)
    alpha_grpc.add_PodResourcesListerServicer_to_server(AlphaPodResourcesService(service), server)
    listen_at(server, socket)
    await server.start()
    return server


def _entries(resource: str, device_id: str, nodes: Iterable[int] | None) -> list[api_pb2.ContainerDevices]:
    if nodes is None:
        return [api_pb2.ContainerDevices(resource_name=resource, device_ids=[device_id])]
    return [
        api_pb2.ContainerDevices(
            resource_name=resource,
            device_ids=[device_id],
            topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=node)]),
        )
        for node in nodes
    ]
