"""Containers admitted as the kubelet does it, one resource after the other, by the calls alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import cast

from node.clocks import SystemClocks
from node.events import EventBus
from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.model import NIC_KINDS, Device, DeviceKind
from node.inventory.places import is_whole, places_of
from node.inventory.recordings.source import read
from node.offer import OfferedDevice
from node.topology.cells import topology_of
from node.topology.model import Place, proximity
from ostler.metrics.counters import PluginMetrics
from plugin.gpu_nic_pairing import RecentGrants
from plugin.listing import DeviceListing
from plugin.preferred import PlacementMap, Preference
from plugin.servicer import Context, DevicePluginServicer
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.nodes import path
from tests.making.clock import ManualClock
from tests.making.plugin_door import render
from tests.making.servicer_calls import CallContext

GPU, NIC, SECOND = "vendor/gpu", "vendor/nic", "vendor/nic2"


CALL = cast("Context", CallContext())


@dataclass(frozen=True, slots=True)
class Given:
    """What a container got, and what was free before: ids by resource."""

    ids: Mapping[str, Sequence[str]]
    free: Mapping[str, frozenset[str]]


class Admitting:
    """A node's resources and what is free of them; ``split``: every other NIC belongs to a second resource."""

    def __init__(self, devices: Iterable[Device], *, split: bool = False) -> None:
        everything = tuple(devices)
        self.clock = ManualClock()
        self.placement = PlacementMap(topology_of(places_of(everything)))
        nics = [device for device in everything if device.kind in NIC_KINDS and is_whole(device)]
        groups = {
            GPU: [device for device in everything if device.kind is DeviceKind.GPU],
            NIC: nics[::2] if split else nics,
            SECOND: nics[1::2] if split else [],
        }
        offered = {device.name: OfferedDevice(device.name, device, healthy=True) for device in groups[GPU]}
        self._gpus = Preference(offered, self.placement)
        self._recent = RecentGrants(SystemClocks(monotonic=self.clock))
        self._servicers = {name: self._servicer(name, members) for name, members in groups.items()}
        self.free = {name: {device.name for device in members} for name, members in groups.items()}
        self.places: dict[str, Place] = {
            device.name: self.placement.place_of(device) for members in groups.values() for device in members
        }

    def _servicer(self, resource: str, devices: Sequence[Device]) -> DevicePluginServicer:
        listing = DeviceListing(resource, EventBus())
        listing.update(tuple(OfferedDevice(device.name, device, healthy=True) for device in devices))
        servicer = DevicePluginServicer(listing, render, PluginMetrics(), self._recent)
        servicer.use(self.placement)
        return servicer

    async def admit(self, asked: Mapping[str, int], order: Sequence[str]) -> Given:
        """One container; its resources in this order."""
        free = {name: frozenset(ids) for name, ids in self.free.items()}
        return Given({resource: await self._allocate(resource, asked[resource]) for resource in order}, free)

    def end(self, *containers: Given) -> None:
        """Containers give back what they have."""
        for container in containers:
            for resource, ids in container.ids.items():
                self.free[resource].update(ids)

    def rank(self, one: str, other: str) -> int:
        """How far two devices are from each other."""
        return proximity(self.places[one], self.places[other]).rank

    def packed(self, free: Iterable[str], count: int) -> list[str]:
        """The GPUs that are preferred where no NIC is known."""
        return self._gpus.prefer(free, (), count)

    async def _allocate(self, resource: str, count: int) -> list[str]:
        free, servicer = self.free[resource], self._servicers[resource]
        ids = sorted(free)
        if count < len(free):
            # With nothing to choose the kubelet does not ask.
            Random(len(free)).shuffle(ids)
            wanted = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=count)
            answer = await servicer.GetPreferredAllocation(
                api_pb2.PreferredAllocationRequest(container_requests=[wanted]), CALL
            )
            ids = list(answer.container_responses[0].deviceIDs)
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        await servicer.Allocate(request, CALL)
        free.difference_update(ids)
        return ids


def shipped(name: str, *, split: bool = False) -> Admitting:
    """A recorded node that is shipped, empty."""
    return Admitting(_devices(name), split=split)


@cache
def _devices(name: str) -> tuple[Device, ...]:
    return tuple(devices_of(read(path(name)).facts, Identities()))
