"""The kubelet's pod resources API: which devices the kubelet knows, from every plugin.

It is the only place where the kubelet says what it believes. Its server takes 100 questions a second and 10 at once
from all clients of the node together, so questions are few and for all resources at a time. A device that its plugin
showed with a topology of no nodes is missing in ``GetAllocatableResources`` (kubelet 1.36); ours never is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from node.sockets import CHANNEL

if TYPE_CHECKING:
    from protos.podresources.v1 import api_pb2

OPTIONS = (
    *CHANNEL,
    # A node with many devices has more to say than the default of 4 MiB.
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
)
"""Of every channel to this API."""
TIMEOUT = 3.0
"""Seconds for each question."""

Answer = TypeVar("Answer")


class PodResourcesRefused(Exception):
    """The API did not answer; ``passing``: it may answer later, because it is there and was busy."""

    def __init__(self, socket: Path, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{socket}: {code.name}: {details}")
        self.code = code
        self.passing = code in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.UNAVAILABLE,
        )


def socket_below(kubelet_root: Path) -> Path:
    """The API's socket of a kubelet with this root folder."""
    return kubelet_root / "pod-resources" / "kubelet.sock"


def readable(socket: Path, answer: Answer | None) -> Answer:
    """The answer, if it is one: grpc.aio gives None for a message that it cannot read.

    Raises ``PodResourcesRefused``.
    """
    if answer is None:
        raise PodResourcesRefused(socket, grpc.StatusCode.INTERNAL, "the answer is not a message of this API")
    return answer


def ids_by_resource(answer: api_pb2.AllocatableResourcesResponse) -> dict[str, frozenset[str]]:
    """Ids of healthy devices, in use or not, by resource."""
    # One entry per device and NUMA node, so the same id may come twice.
    return by_resource((entry.resource_name, id_) for entry in answer.devices for id_ in entry.device_ids)


def by_resource(devices: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Ids by resource, of pairs of both."""
    found: dict[str, set[str]] = {}
    for resource, id_ in devices:
        found.setdefault(resource, set()).add(id_)
    return {resource: frozenset(ids) for resource, ids in found.items()}


async def healthy_ids(socket: Path, seconds: float = TIMEOUT) -> Mapping[str, frozenset[str]]:
    """Ask once for the healthy devices of every resource, by name; raises ``PodResourcesRefused``."""
    # Here and not above: a node asks this some time after its start, and a standby never.
    from protos.podresources.v1 import api_pb2, api_pb2_grpc

    async with grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        lister = api_pb2_grpc.PodResourcesListerStub(channel)
        try:
            answer = await lister.GetAllocatableResources(api_pb2.AllocatableResourcesRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise PodResourcesRefused(socket, error.code(), error.details() or "") from error
    return ids_by_resource(readable(socket, answer))
