"""A process that really dies between covering, publishing, confirming and forgetting: the next one ends it right.

Dying here is ``os._exit``: nothing is cleaned up. What others have to know is on the disk and at the API server, which
is this process; so what must hold is said of these two: no device is free in a slice that the record does not have, and
the next process, whatever its rule, ends with slices and record as the rule wants them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driver.claims.model import ClaimReference
from driver.devices.view import DoorView, DraDevice
from driver.node_watch.node_claims import NamedDevice
from driver.publishing.publisher import SlicePublisher, controller_maker
from driver.publishing.shown import ShownDevices
from driver.publishing.withdrawal import Withdrawal
from node.events import EventBus
from node.ledger.events import OfferChanged
from node.offer import Cause
from node.rules import Doors, Rule
from sandbox.apiserver.server import ApiServer
from tests.making.devices import gpu
from tests.making.dying import DyingProcesses
from tests.making.events import RecordedEvents
from tests.making.resource_api import api_at
from tests.waiting import background, eventually

EXIT = 77
DEVICES = tuple(gpu(number) for number in range(3))
NAMES = frozenset(device.name for device in DEVICES)
STEPS = ("to cover", "covered", "published", "withdrawn", "listed", "to forget", "half forgotten", "forgotten")


class Dying(ShownDevices):
    """Ends the process at one step."""

    def __init__(self, folder: Path, reached: Callable[[str], None]) -> None:
        super().__init__(folder)
        self._reached = reached

    def cover(self, names: Iterable[str]) -> frozenset[str]:
        names = frozenset(names)
        if names:
            self._reached("to cover")
        new = super().cover(names)
        if names:
            self._reached("covered")
        return new

    def forget(self, names: Iterable[str], as_of: int, devices: Iterable[str] = ()) -> tuple[frozenset[str], str]:
        self._reached("to forget")
        ended = super().forget(names, as_of, devices)
        self._reached("forgotten")
        return ended

    def _remove(self) -> None:
        super()._remove()
        self._reached("half forgotten")


class _Process:
    """Slices, record and withdrawal of one process, as the DRA door has them."""

    def __init__(self, folder: Path, url: str, door: Doors, reached: Callable[[str], None]) -> None:
        self.door = door
        self._reached = reached
        self.shown = Dying(folder, reached)
        assert self.shown.load() == ""
        self.slices = SlicePublisher(
            "node-1",
            controller_maker(lambda: api_at(url), "ostler.dev", "node-1"),
            events=RecordedEvents(),
            interval=0.0,
            shown=self.shown,
        )
        bus = EventBus()
        bus.subscribe(OfferChanged, lambda _: self.apply())
        self.withdrawal = Withdrawal(
            self.shown,
            self._naming,
            free=self.slices.free,
            taken=dict,
            events=RecordedEvents(),
            bus=bus,
            quiet=0.01,
        )

    def use(self, door: Doors) -> None:
        self.door = door
        self.apply()

    def apply(self) -> None:
        rule, shown = Rule("nvidia.com/gpu", door=self.door), self.shown.among(NAMES)
        devices = []
        for device in DEVICES:
            if self.door is Doors.DRA:
                devices.append(DraDevice(device, rule, True))
            elif device.name in shown:
                devices.append(DraDevice(device, rule, False, "moving", Cause.MOVING))
        view = DoorView(tuple(devices))
        self.slices.apply(view)
        self.withdrawal.apply(DEVICES, [rule], view)

    async def _naming(self, devices: Collection[str]) -> Iterable[NamedDevice]:
        self._reached("withdrawn")
        await asyncio.sleep(0)
        self._reached("listed")
        return [NamedDevice("other", ClaimReference("a", "b", "c"))]


async def _run(process: _Process, door: Doors, done: Callable[[], bool]) -> None:
    process.use(door)
    process.slices.start()
    try:
        async with background(process.withdrawal.run()):
            await eventually(done, within=120)
    finally:
        await asyncio.to_thread(process.slices.stop)


def die(folder: str, url: str, step: str) -> None:
    """What the killed process does: it publishes, and withdraws."""

    def reached(name: str) -> None:
        if name == step:
            os._exit(EXIT)

    async def main() -> None:
        process = _Process(Path(folder), url, Doors.DRA, reached)
        process.apply()
        process.slices.start()
        await eventually(lambda: process.slices.free() == NAMES, within=120)
        reached("published")
        task = asyncio.create_task(process.withdrawal.run())
        process.use(Doors.PLUGIN)
        await asyncio.wait([task])

    threading.Timer(40, lambda: os._exit(1)).start()
    asyncio.run(main())


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.store.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        yield running


def in_slices(server: ApiServer, *, free: bool = True) -> set[str]:
    slices: list[Any] = server.store.list("resourceslices")
    devices = [device for each in slices for device in each["spec"].get("devices", ())]
    return {device["name"] for device in devices if not (free and device.get("taints"))}


@pytest.mark.parametrize(
    ("step", "door"),
    [
        *[(step, Doors.PLUGIN) for step in STEPS],
        *[(step, Doors.DRA) for step in ("covered", "listed", "half forgotten")],
    ],
)
def test_after_a_kill_at_any_step_the_next_process_ends_it_right(
    tmp_path: Path, dying: DyingProcesses, server: ApiServer, step: str, door: Doors
) -> None:
    ended = dying.run(die, str(tmp_path), server.url, step)
    assert ended.code == EXIT, ended.written
    left = ShownDevices(tmp_path)
    assert left.load() == ""
    assert in_slices(server) <= left.among(NAMES), "what claims may get is on the record"
    if step in ("covered", "published", "withdrawn", "listed", "to forget"):
        assert left.among(NAMES) == NAMES, "whoever comes next has to confirm it"
    wanted = set(NAMES) if door is Doors.DRA else set()

    def is_right() -> bool:
        return in_slices(server) == in_slices(server, free=False) == wanted == set(process.shown.among(NAMES))

    process = _Process(tmp_path, server.url, door, lambda _: None)
    asyncio.run(_run(process, door, is_right))
    assert set(ShownDevices(tmp_path)._read()[0]) == wanted
