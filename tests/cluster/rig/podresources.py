"""What the real kubelet says of who has which device."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc

from protos.podresources.v1 import api_pb2, api_pb2_grpc
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import PATIENCE

LOOK = 10.0
"""Seconds of one call."""
PAUSE = 0.05
AGAIN = (
    # The kubelet answers a hundred questions a second, of the agents and of all others together.
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    # It is being restarted.
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
"""The kubelet says nothing, and does a moment later."""

_Answer = TypeVar("_Answer")


def _asked(node: RigNode, ask: Callable[[api_pb2_grpc.PodResourcesListerStub], _Answer]) -> _Answer:
    """The kubelet's answer, as soon as it gives one."""
    path: Path = node.kubelet_folder / "pod-resources" / "kubelet.sock"
    deadline = time.monotonic() + PATIENCE
    while True:
        with grpc.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            try:
                return ask(api_pb2_grpc.PodResourcesListerStub(channel))
            except grpc.RpcError as error:
                if error.code() not in AGAIN or time.monotonic() > deadline:
                    raise
        time.sleep(PAUSE)


def listed(node: RigNode, namespace: str = "default") -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Pairs of resource and device id, sorted, by pod and container of the namespace.

    Of sidecars and app containers only.
    """
    answer = _asked(node, lambda stub: stub.List(api_pb2.ListPodResourcesRequest(), timeout=LOOK))
    return {
        (pod.name, container.name): sorted(
            {(entry.resource_name, id_) for entry in container.devices for id_ in entry.device_ids}
        )
        for pod in answer.pod_resources
        if pod.namespace == namespace
        for container in pod.containers
    }


def devices_of(node: RigNode, pod: str) -> list[str]:
    """The ids of all devices of a pod, sorted."""
    return sorted(id_ for (name, _), entries in listed(node).items() if name == pod for _, id_ in entries)


def allocatable_ids(node: RigNode, resource: str) -> list[str]:
    """The ids of the healthy devices that the kubelet knows of a resource, free or not, sorted."""
    request = api_pb2.AllocatableResourcesRequest()
    answer = _asked(node, lambda stub: stub.GetAllocatableResources(request, timeout=LOOK))
    entries = (entry for entry in answer.devices if entry.resource_name == resource)
    return sorted({id_ for entry in entries for id_ in entry.device_ids})
