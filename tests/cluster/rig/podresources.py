"""What the real kubelet says of who has which device."""

from __future__ import annotations

from pathlib import Path

import grpc

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from tests.cluster.rig.node import Node

TIMEOUT = 10.0


def _stub(node: Node) -> tuple[grpc.Channel, api_pb2_grpc.PodResourcesListerStub]:
    path: Path = node.kubelet_folder / "pod-resources" / "kubelet.sock"
    channel = grpc.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),))
    return channel, api_pb2_grpc.PodResourcesListerStub(channel)


def listed(node: Node) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Pairs of resource and device id, sorted, by pod and container; sidecars and app containers only."""
    channel, stub = _stub(node)
    with channel:
        answer = stub.List(api_pb2.ListPodResourcesRequest(), timeout=TIMEOUT)
    return {
        (pod.name, container.name): sorted(
            {(entry.resource_name, id_) for entry in container.devices for id_ in entry.device_ids}
        )
        for pod in answer.pod_resources
        for container in pod.containers
    }


def devices_of(node: Node, pod: str) -> list[str]:
    """The ids of all devices of a pod, sorted."""
    return sorted(id_ for (name, _), entries in listed(node).items() if name == pod for _, id_ in entries)


def allocatable_ids(node: Node, resource: str) -> list[str]:
    """The ids of the healthy devices that the kubelet knows of a resource, free or not, sorted."""
    channel, stub = _stub(node)
    with channel:
        answer = stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest(), timeout=TIMEOUT)
    entries = (entry for entry in answer.devices if entry.resource_name == resource)
    return sorted({id_ for entry in entries for id_ in entry.device_ids})
