"""Offered devices and doors for tests, made by hand."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from node.directories import Inotify, KernelInotify
from node.inventory.model import Device, DeviceKind
from node.offer import Offer, OfferedDevice, ResourceOffer
from node.rules import Rule
from ostler.agent.edges import Edges
from plugin.door import PluginDoor
from plugin.kubelet import KubeletFolders, QuestionPace, RegistrationPath
from plugin.observer import PluginObserver
from plugin.servicer import Render
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.events import RecordedEvents
from tests.waiting import background

BOTH = (RegistrationPath.REGISTRY, RegistrationPath.REGISTER)
QUICK = QuestionPace(soon=0.1, again=0.1, sure=0.2, every=1.0, alive=0.05)
"""A registrar that is in a hurry, as tests are."""


def offered(id_: str, numa: int | None = None, *, healthy: bool = True, reason: str = "") -> OfferedDevice:
    """A GPU offered under ``id_``."""
    device = Device(name=f"gpu-{id_}", kind=DeviceKind.GPU, vendor="nvidia", uuid=id_, numa_node=numa)
    return OfferedDevice(id_, device, healthy, reason)


def offer_of(resource: str = "nvidia.com/gpu", *devices: OfferedDevice) -> Offer:
    """An offer of one resource."""
    return Offer((ResourceOffer(resource, Rule(resource), devices),))


def render(devices: Sequence[OfferedDevice]) -> api_pb2.ContainerAllocateResponse:
    """The ids in one variable."""
    return api_pb2.ContainerAllocateResponse(envs={"IDS": ",".join(device.id for device in devices)})


def folders(root: Path, paths: tuple[RegistrationPath, ...] = BOTH, patience: float = 5.0) -> KubeletFolders:
    """The kubelet's folders below ``root``."""
    return KubeletFolders(root / "device-plugins", root / "plugins_registry", paths, patience)


def door(
    root: Path,
    told: RecordedEvents | None = None,
    *,
    paths: tuple[RegistrationPath, ...] = BOTH,
    observer: PluginObserver | None = None,
    answer: Render = render,
    patience: float = 5.0,
    open_watch: Callable[[], Inotify] = KernelInotify,
    pace: QuestionPace = QUICK,
) -> PluginDoor:
    """A door at the kubelet below ``root``."""
    return PluginDoor(
        folders(root, paths, patience),
        lambda _: answer,
        Edges(random=random.Random(0).random),
        events=told or RecordedEvents(),
        observer=observer or PluginObserver(),
        open_watch=open_watch,
        pace=pace,
    )


@asynccontextmanager
async def running(served: PluginDoor) -> AsyncIterator[PluginDoor]:
    """The door at work."""
    async with background(served.run()):
        yield served


def state(served: PluginDoor, resource: str = "nvidia.com/gpu") -> str:
    """Registration state of a resource."""
    return next(status.registration.state.value for status in served.status() if status.name == resource)


def socket_of(served: PluginDoor, resource: str = "nvidia.com/gpu") -> Path:
    """Where a resource is served now."""
    path = next(status.registration.socket for status in served.status() if status.name == resource)
    assert path is not None
    return path
