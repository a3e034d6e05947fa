"""The books with a kubelet and processes that say what a test tells them to, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from node.health.state import Health
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger.events import HoldsChanged
from node.ledger.holds import Hold, HoldState
from node.ledger.offer_context import OfferContext
from node.ledger.processes import Process
from node.ledger.reader import Holding, Reading
from node.offer import Offer, OfferedDevice, ResourceOffer
from node.rules import Door, Doors, Rule, Selector
from ostler.agent.doors import open_books
from ostler.agent.edges import Edges
from ostler.config.settings import InventorySettings, Settings
from ostler.metrics.counters import HoldsMetrics
from tests.making.events import RecordedEvents
from tests.making.virtual_time import beside, now

GPU = "nvidia.com/gpu"
LATER = 0.1
"""Seconds from the first use of the books to the first reading of the kubelet."""
BOTH = Rule(GPU, Selector(), Doors.BOTH)
PLUGIN = Rule(GPU, Selector(), Doors.PLUGIN)


def gpu(number: int) -> Device:
    return Device(f"gpu-{number}", DeviceKind.GPU, "nvidia", uuid=f"GPU-{number}", health=Health())


def part(number: int) -> Device:
    return Device(
        f"mig-{number}", DeviceKind.MIG, "nvidia", uuid=f"MIG-{number}", parent=f"gpu-{number}", health=Health()
    )


def offered(*devices: Device, healthy: bool = True) -> list[OfferedDevice]:
    return [OfferedDevice(str(device.uuid), device, healthy) for device in devices]


def shown(*devices: Device, healthy: bool = True) -> Offer:
    return Offer((ResourceOffer(GPU, BOTH, tuple(offered(*devices, healthy=healthy))),))


def claimed(device: Device) -> Hold:
    return Hold(device.name, Door.DRA, "team/claim", 0.0, owner="uid-claim", state=HoldState.PREPARED)


class BooksKubelet:
    """What it says, and when it was asked; ``broken``: the reader fails with what no kubelet does."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.listed: tuple[Holding, ...] = ()
        self.allocatable: frozenset[tuple[str, str]] = frozenset()
        self.faults: tuple[str, ...] = ()
        self.broken = False
        self.looked_up: list[list[tuple[str, str]]] = []
        self.written: tuple[Holding, ...] | None = ()
        """Its checkpoint; None while it cannot be read."""
        self.read_checkpoint = 0

    has_records = True

    async def holding(self, ids: Collection[tuple[str, str]], gone: Callable[[str], bool]) -> Holding | None:
        self.looked_up.append(sorted(ids))
        return next((item for item in self.listed if (item.resource, item.id) in ids), None)

    async def recorded(self) -> tuple[Holding, ...] | None:
        self.read_checkpoint += 1
        await asyncio.sleep(0.001)
        return self.written

    async def read(self) -> Reading:
        self.asked.append(round(now(), 3))
        if self.broken:
            raise RuntimeError("the reader is at fault")
        began = asyncio.get_running_loop().time()
        if self.faults:
            return Reading(began, None, None, None, self.faults)
        return Reading(began, self.listed, self.written, self.allocatable)


class _Containers:
    """Pods that have containers, by UID; ``fault``: nobody can tell this time."""

    def __init__(self) -> None:
        self.off = ""
        self.running: set[str] = set()
        self.fault = ""
        self.looks = 0

    def left(self, uids: Collection[str]) -> frozenset[str]:
        self.looks += 1
        if self.fault:
            raise OSError(self.fault)
        return frozenset() if self.off else frozenset(self.running & set(uids))

    def confirm(self, living: Collection[str]) -> None:
        """Whatever lives is seen."""


class _Processes:
    """What is left on every device."""

    def __init__(self) -> None:
        self.left: tuple[Process, ...] = ()
        self.broken = False

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        if self.broken:
            raise RuntimeError("the driver's binding is at fault")
        return self.left


class Desk:
    """The books with what they stand on; ``changes``: when the doors were to be shown anew."""

    def __init__(
        self, *devices: Device, rule: Rule = BOTH, relieves: bool = False, state_dir: Path = Path("/nowhere")
    ) -> None:
        loop = asyncio.get_running_loop()
        self.containers = _Containers()
        self.kubelet, self.processes, self.events = BooksKubelet(), _Processes(), RecordedEvents()
        self.changes: list[float] = []
        self.heard: list[tuple[float, frozenset[tuple[str, str]] | None]] = []
        edges = Edges(lambda: 1e9 + loop.time(), loop.time, lambda: 0.0)
        self.metrics = HoldsMetrics(edges)
        self.books = open_books(
            Settings(inventory=InventorySettings(recorded=Path("/nowhere")), state_dir=state_dir),
            edges,
            self.processes,
            self.events,
            self.metrics,
            reader=self.kubelet,
            containers=self.containers,
        )
        self.books.bus.subscribe(HoldsChanged, lambda _: self.changes.append(round(now(), 3)))
        self.books.bus.subscribe(Reading, lambda read: self.heard.append((read.began, read.allocatable)))
        self.books.pending_release.off = ""
        self.books.begin(relieves=relieves)
        self.books.place(Snapshot(1, devices), (rule,))

    async def run(self) -> None:
        await asyncio.sleep(LATER)
        await self.books.run()

    async def rest(self) -> None:
        """Nobody reads the kubelet."""

    def context(self, *contested: str) -> OfferContext:
        """What the doors' offers are decided by, with nothing at the scheduler."""
        return self.books.context(frozenset(), frozenset(contested))


Story = Callable[[Desk], Awaitable[None]]


def play(
    story: Story,
    *devices: Device,
    rule: Rule = BOTH,
    relieves: bool = False,
    state_dir: Path = Path("/nowhere"),
) -> Desk:
    return beside(lambda: Desk(*devices, rule=rule, relieves=relieves, state_dir=state_dir), Desk.run, story)


class BooksPods:
    """What the API server has told."""

    def __init__(self, *gone: str) -> None:
        self._gone = gone

    def gone(self, uid: str) -> bool:
        return uid in self._gone

    def name_of(self, uid: str) -> str:
        return f"team/{uid}"

    def uid_of(self, name: str) -> str:
        return name.removeprefix("team/")


def had(number: int, uid: str) -> Holding:
    return Holding(GPU, f"GPU-{number}", "main", uid=uid)


async def allocate(desk: Desk, *numbers: int) -> None:
    """As the plugin door does it."""
    devices = offered(*map(gpu, numbers))
    doubt = desk.books.doubted(GPU, devices)
    if doubt is not None:
        await doubt
    desk.books.allocate(GPU, devices)


async def deleted_by_force(desk: Desk, uid: str = "a", number: int = 0) -> None:
    """A pod gets a device, is seen to have it, and is gone by the books while its containers run."""
    await allocate(desk, number)
    desk.kubelet.written = (had(number, uid),)
    desk.kubelet.listed = (Holding(GPU, f"GPU-{number}", "main", pod=f"team/{uid}"),)
    desk.containers.running.add(uid)
    desk.books.kubelet_changed()
    await asyncio.sleep(2)
    desk.kubelet.written = desk.kubelet.listed = ()
    desk.books.keeper.know(BooksPods(uid))
    desk.books.pods_changed()
    await asyncio.sleep(0.5)
