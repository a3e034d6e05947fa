"""Both doors in this process, with real threads and HTTP; the kubelet is a function of what the plugin door lists."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from driver.publishing.withdrawal import Withdrawal
from node.inventory.model import Device, Snapshot
from node.ledger.events import HoldsChanged, OfferChanged
from node.ledger.processes import Process
from node.ledger.reader import Holding, Reading
from node.rules import Door, Doors, Rule
from node.values import replace
from ostler.agent.doors import open_books
from ostler.agent.dra_parts import NO_PARTITIONS, DraParts, PartitionMaking
from ostler.agent.dra_service import DraService
from ostler.agent.edges import Edges
from ostler.agent.loading import KubeletFirst
from ostler.agent.publisher import Publisher
from ostler.config.settings import (
    CdiSettings,
    DraSettings,
    InventorySettings,
    KubeletSettings,
    KubernetesSettings,
    Settings,
)
from ostler.metrics.counters import HoldsMetrics
from plugin.door import PluginDoor
from plugin.kubelet import KubeletFolders
from plugin.observer import PluginObserver
from plugin.servicer import renderer
from sandbox.apiserver.server import ApiServer
from scheduling.api.validation.shapes import DEFAULT, Gates
from tests.making.events import RecordedEvents
from tests.making.offered_devices import gpu
from tests.making.watched_node import NODE
from tests.waiting import eventually

RESOURCE = "nvidia.com/gpu"
WITHDRAWN = [("ostler.dev/other-door", "NoSchedule")]
"""The taint of what the other door has allocated."""


@contextmanager
def api_server(gates: Gates = DEFAULT) -> Iterator[ApiServer]:
    """A stand-in with the Node of this machine."""
    with ApiServer(gates) as running:
        running.store.create("nodes", {"metadata": {"name": NODE, "labels": {}}})
        yield running


def gpus(count: int) -> tuple[Device, ...]:
    """So many GPUs that are in nothing different but their names."""
    return tuple(replace(gpu(0), name=f"gpu-{n:04}", uuid=f"GPU-{n:04}", pci_address=None) for n in range(count))


class _Kubelet:
    """What the kubelet says: it counts what is listed healthy, ``late`` readings later, and lists ``pods``."""

    def __init__(self) -> None:
        self.both: Both | None = None
        self.pods: dict[str, str] = {}
        """Pods by the device that they have."""
        self.uids: dict[str, str] = {}
        """UIDs of pods by the device that the checkpoint records for them."""
        self.readings = 0

    async def read(self) -> Reading:
        assert self.both is not None
        self.readings += 1
        began = time.monotonic()
        counted = frozenset((RESOURCE, f"GPU-{name[-4:]}") for name in self.both.at_plugin())
        held = tuple(Holding(RESOURCE, f"GPU-{name[-4:]}", "c", pod=pod) for name, pod in self.pods.items())
        return Reading(began, held, await self.recorded(), counted)

    has_records = True

    async def recorded(self) -> tuple[Holding, ...]:
        return tuple(Holding(RESOURCE, f"GPU-{name[-4:]}", "c", uid=uid) for name, uid in self.uids.items())

    async def holding(self, ids: object, gone: object) -> None:
        """Nobody is asked again for what a pod has."""


class _Nothing:
    """No process runs on any device."""

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        return ()


class Both:
    """Both doors of one node with ``devices``, as the agent wires them. Made on the loop that runs them."""

    def __init__(
        self,
        folder: Path,
        server: ApiServer,
        devices: tuple[Device, ...],
        door: Doors,
        *,
        quiet: float = 0.05,
        rule: Rule = Rule(RESOURCE),  # noqa: B008 - frozen
        partitions: PartitionMaking = NO_PARTITIONS,
    ) -> None:
        (folder / "state").mkdir(exist_ok=True)
        self.server = server
        self.events = RecordedEvents()
        self.kubelet = _Kubelet()
        self.kubelet.both = self
        self.snapshot = Snapshot(1, devices)
        folders = KubeletSettings(folder / "k/device-plugins", folder / "k/plugins_registry")
        for each in (folders.device_plugin_dir, folders.registry_dir, folder / "k/plugins"):
            each.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(
            node_name=NODE,
            kubelet=folders,
            cdi=CdiSettings((folder / "cdi",), folder / "cdi"),
            inventory=InventorySettings(recorded=folder / "node.yaml"),
            state_dir=folder / "state",
            rules=(replace(rule, door=door),),
            kubernetes=KubernetesSettings(kubeconfig=server.kubeconfig(folder / "kubeconfig"), door_by_node=True),
            dra=DraSettings(plugins_dir=folder / "k/plugins"),
        )
        self.door = PluginDoor(
            KubeletFolders(folders.device_plugin_dir, folders.registry_dir),
            renderer,
            edges := Edges(random=_half),
            events=self.events,
            observer=PluginObserver(),
        )
        self.publisher = Publisher(self.settings, self.door, self.events)
        self.metrics = HoldsMetrics(edges)
        self.books = open_books(self.settings, edges, _Nothing(), self.events, self.metrics, reader=self.kubelet)
        self.publisher.follow_ledger(self.books)
        self.books.bus.subscribe(HoldsChanged, self.publisher.on_holds_changed)
        self.books.bus.subscribe(OfferChanged, self.publisher.on_holds_changed)
        parts = DraParts(self.settings, edges, self.books, self.events, is_alive=lambda: True, partitions=partitions)
        self.second = DraService(self.settings.dra.driver_name, parts, self.books)
        self.publisher.open_dra(self.second)
        self.withdrawal: Withdrawal = parts.withdrawal
        self.withdrawal._quiet = quiet

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Both]:
        self.books.begin(relieves=False)
        self.publisher.submit(self.snapshot)
        parts = (self.publisher.run(), self.books.run(), self.second.run(AtOnce()))
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            done, _ = await asyncio.wait(tasks)
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error

    def use(self, door: Doors) -> None:
        """Another door in the only rule."""
        (rule,) = self.settings.rules
        self.settings = replace(self.settings, rules=(replace(rule, door=door),))
        self.publisher.use(self.settings)
        self.publisher.submit(self.snapshot)

    def pod_gets(self, device: str) -> None:
        """A pod has the device, which the kubelet tells when it is asked."""
        self.kubelet.pods[device] = "team/plugin"
        self.books.pods_changed()

    def pod_ends(self, device: str) -> None:
        """The pod that has the device ends."""
        del self.kubelet.pods[device]
        self.books.pods_changed()

    def at_plugin(self) -> set[str]:
        """What the plugin door lists as healthy."""
        listing = self.door._resources.get(RESOURCE)
        shown = () if listing is None else listing.listing.devices.values()
        return {item.device.name for item in shown if item.healthy}

    def in_slices(self, *, free: bool = True) -> set[str]:
        """What the API server's slices have; ``free``: without a taint."""
        slices: list[Any] = self.server.store.list("resourceslices")
        devices = [device for each in slices for device in each["spec"].get("devices", ())]
        return {device["name"] for device in devices if not (free and device.get("taints"))}

    def effects(self, device: str) -> list[tuple[str, str]]:
        """Keys and effects of a device's taints in the API."""
        slices: list[Any] = self.server.store.list("resourceslices")
        return [
            (taint["key"], taint["effect"])
            for each in slices
            for found in each["spec"].get("devices", ())
            if found["name"] == device
            for taint in found.get("taints", ())
        ]

    def marked(self) -> bool:
        """Whether the record of shown devices is there."""
        return (self.settings.state_dir / "dra-door.json").exists()

    def asked(self, verb: str, resource: str) -> int:
        return len(self.server.requests.of(verb, resource))


async def ended_at(both: Both, doors: Doors, within: float = 120.0) -> None:
    """Everything is offered through these doors and no others, and nothing is under way any more."""
    names = {device.name for device in both.snapshot.devices}
    plugin, dra = (names if doors.has(door) else set[str]() for door in Door)

    def ended() -> bool:
        return (both.at_plugin(), both.in_slices(), both.in_slices(free=False), both.marked()) == (
            plugin,
            dra,
            dra,
            bool(dra),
        )

    try:
        await eventually(ended, f"everything at {doors}", within)
    except AssertionError as error:
        state = both.at_plugin(), both.in_slices(), both.in_slices(free=False), both.second.leaving()
        raise AssertionError(f"{error}: {[*map(len, state)]} {both.events.events}") from error


@asynccontextmanager
async def begun(folder: Path, server: ApiServer, count: int, door: Doors) -> AsyncIterator[Both]:
    """A node with so many GPUs that runs, and whose rule has what it asks for already."""
    both = Both(folder, server, gpus(count), door)
    async with both.running():
        await ended_at(both, door)
        yield both


class AtOnce(KubeletFirst):
    """Nothing waits for the kubelet."""

    async def turn(self) -> None:
        """Return at once."""


def _half() -> float:
    return 0.5
