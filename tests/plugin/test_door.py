"""The door over its resources: what they share, and what an offer changes in each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from node.inventory.model import Device, DeviceKind
from node.offer import Offer, OfferedDevice, ResourceOffer
from node.rules import Rule
from node.topology.cells import topology_of
from ostler.agent.edges import Edges
from plugin.door import PluginDoor
from plugin.observer import PluginObserver
from plugin.servicer import Render
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from tests.making.events import RecordedEvents
from tests.making.places import gpu, nic, path_of
from tests.making.plugin_door import door, folders, offer_of, offered, render, running, socket_of
from tests.waiting import eventually

GPU, NIC, STORAGE = "nvidia.com/gpu", "rdma/fabric", "rdma/storage"
PORTS = {number: (*path_of(number, 8)[:-1], f"nic-port-{number}") for number in range(8)}
TOPOLOGY = topology_of(
    [
        *(gpu(number, path_of(number, 8), number // 4) for number in range(8)),
        *(nic(number, PORTS[number], number // 4) for number in range(8)),
    ]
)


def device(name: str, kind: DeviceKind, numa: int) -> OfferedDevice:
    return OfferedDevice(name, Device(name, kind, "vendor", numa_node=numa), healthy=True)


def whole_node() -> Offer:
    gpus = tuple(device(f"gpu-{number}", DeviceKind.GPU, number // 4) for number in range(8))
    nics = tuple(device(f"nic-{number}", DeviceKind.RDMA, number // 4) for number in range(8))
    return Offer(
        (
            ResourceOffer(GPU, Rule(GPU), gpus),
            ResourceOffer(NIC, Rule(NIC), nics),
            ResourceOffer(STORAGE, Rule(STORAGE), nics),
        )
    )


class _Kubelet:
    """Calls of the kubelet's kind to the resources of a door."""

    def __init__(self, stubs: Mapping[str, api_pb2_grpc.DevicePluginStub]) -> None:
        self._stubs = stubs

    async def prefer(self, resource: str, available: Sequence[str], size: int) -> list[str]:
        wanted = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        request = api_pb2.PreferredAllocationRequest(container_requests=[wanted])
        response = await self._stubs[resource].GetPreferredAllocation(request, timeout=60)
        return list(response.container_responses[0].deviceIDs)

    async def allocate(self, resource: str, *ids: str) -> None:
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        await self._stubs[resource].Allocate(request, timeout=60)


@asynccontextmanager
async def kubelet_of(served: PluginDoor, *resources: str) -> AsyncIterator[_Kubelet]:
    def served_all() -> bool:
        found = {status.name for status in served.status() if status.registration.socket is not None}
        return set(resources) <= found

    async with running(served):
        await eventually(served_all, "every resource has its socket")
        channels = {name: grpc.aio.insecure_channel(f"unix:{socket_of(served, name)}") for name in resources}
        try:
            yield _Kubelet({name: api_pb2_grpc.DevicePluginStub(channel) for name, channel in channels.items()})
        finally:
            for channel in channels.values():
                await channel.close()


def made(root: Path) -> PluginDoor:
    (root / "device-plugins").mkdir()
    (root / "plugins_registry").mkdir()
    return door(root)


NICS = [f"nic-{number}" for number in range(8)]


async def test_nics_of_every_resource_follow_the_gpus_given_just_before(short_dir: Path) -> None:
    served = made(short_dir)
    served.apply(whole_node(), TOPOLOGY)
    async with kubelet_of(served, GPU, NIC, STORAGE) as kubelet:
        chosen = await kubelet.prefer(GPU, [f"gpu-{number}" for number in range(4, 8)], 2)
        assert chosen == ["gpu-4", "gpu-5"]
        await kubelet.allocate(GPU, *chosen)
        assert await kubelet.prefer(NIC, NICS, 2) == ["nic-4", "nic-5"]
        await kubelet.allocate(NIC, "nic-4", "nic-5")
        assert await kubelet.prefer(STORAGE, NICS, 1) == ["nic-4"], "another resource, the same container"
        assert await kubelet.prefer(NIC, NICS, 1) == ["nic-0"], "followed already: the next container's"


async def test_a_new_topology_is_followed_from_the_next_call_on(short_dir: Path) -> None:
    served = made(short_dir)
    served.apply(whole_node())
    async with kubelet_of(served, GPU) as kubelet:
        free = ["gpu-1", "gpu-2", "gpu-3"]
        assert await kubelet.prefer(GPU, free, 2) == ["gpu-1", "gpu-2"]
        served.apply(whole_node(), TOPOLOGY)
        assert await kubelet.prefer(GPU, free, 2) == ["gpu-2", "gpu-3"]


def test_a_rule_without_hints_shows_devices_without_numa_node(short_dir: Path) -> None:
    served = made(short_dir)
    shown = []
    for hints in (True, False):
        served.apply(Offer((ResourceOffer(GPU, Rule(GPU, hints=hints), (offered("a", 1),)),)))
        shown.append(served._resources[GPU].listing._message.devices[0].HasField("topology"))
    assert shown == [True, False]


def test_answers_are_made_for_the_resource_as_it_is_offered(short_dir: Path) -> None:
    asked: list[ResourceOffer] = []

    def render_for(resource: ResourceOffer) -> Render:
        asked.append(resource)
        return render

    served = PluginDoor(
        folders(short_dir),
        render_for,
        Edges(),
        events=RecordedEvents(),
        observer=PluginObserver(),
    )
    for devices in ((), (offered("a"),)):
        served.apply(offer_of(GPU, *devices))
    assert [(resource.resource, len(resource.devices)) for resource in asked] == [(GPU, 0), (GPU, 1)]
