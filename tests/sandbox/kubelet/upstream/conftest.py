"""A device manager without plugins, for themes that need no connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devicemanager import DeviceManager, DeviceManagerSettings
from sandbox.kubelet.events import EventFeed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import AllocationRecord, ContainerResource
from sandbox.kubelet.pods import ActivePods, Container, Kind, Pod
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.conftest import GPU
from tests.sandbox.kubelet.scripted_plugin import device


def list_of(*items: api_pb2.Device) -> api_pb2.ListAndWatchResponse:
    return api_pb2.ListAndWatchResponse(devices=items)


def healthy_list(*ids: str) -> api_pb2.ListAndWatchResponse:
    return list_of(*(device(name) for name in ids))


def pod_of(*parts: tuple[str, Kind, int]) -> Pod:
    """A pod of containers by name, kind and number of devices."""
    return Pod("p", "p", containers=tuple(Container(name, kind, {GPU: count}) for name, kind, count in parts))


class Bare:
    """A device manager without plugins: lists and records are put into it."""

    def __init__(self, folder: Path, generation: Generation = "1.36") -> None:
        self.clock = ManualClock(1000.0)
        self.pods = ActivePods()
        settings = DeviceManagerSettings(folder, generation=generation, clock=self.clock)
        self.manager = DeviceManager(settings, self.pods, EventFeed())

    def connect(self, resource: str, *items: api_pb2.Device) -> PluginEndpoint:
        """An endpoint that answered, and its first list."""
        endpoint = PluginEndpoint(resource, f"/{resource}.sock")
        self.manager.state.connected(endpoint)
        self.manager.state.received(resource, list_of(*items))
        return endpoint

    def record(
        self,
        workload: Pod,
        container: str,
        resource: str,
        buckets: Mapping[int, tuple[str, ...]],
        answer: api_pb2.ContainerAllocateResponse | None = None,
    ) -> None:
        """Devices that a container holds."""
        self.pods.by_uid[workload.uid] = workload
        holder = ContainerResource(workload.uid, container, resource)
        self.manager.records.reserve(holder)
        record = AllocationRecord(buckets, answer or api_pb2.ContainerAllocateResponse())
        self.manager.records.commit(holder, record)


@pytest.fixture
def bare(short_dir: Path) -> Bare:
    return Bare(short_dir)
