"""Who has what, kept true: when the kubelet is read, when the doors are shown anew, and what people are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import pytest

from node.events import EventType
from node.health.state import Health
from node.holds.processes import Process
from node.holds.reading import Holding, Reading
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger import HeldError, Hold, HoldState
from node.offer import Offer, OfferedDevice, ResourceOffer
from node.rules import Door, Doors, Rule, Selector
from ostler.bookkeeping import ALONE, QUIET, TOLD, Bookkeeping
from ostler.config.settings import InventorySettings, Settings
from ostler.edges import Edges
from tests.holds.making import Events
from tests.virtual_time import START, beside, now

GPU = "nvidia.com/gpu"
LATER = 0.1
"""Seconds from the first use of the books to the first reading of the kubelet."""
BOTH = Rule(GPU, Selector(), Doors.BOTH)
PLUGIN = Rule(GPU, Selector(), Doors.PLUGIN)


def gpu(number: int) -> Device:
    return Device(f"gpu-{number}", DeviceKind.GPU, "nvidia", uuid=f"GPU-{number}", health=Health())


def offered(*devices: Device, healthy: bool = True) -> list[OfferedDevice]:
    return [OfferedDevice(str(device.uuid), device, healthy) for device in devices]


def shown(*devices: Device, healthy: bool = True) -> Offer:
    return Offer((ResourceOffer(GPU, BOTH, tuple(offered(*devices, healthy=healthy))),))


def claimed(device: Device) -> Hold:
    return Hold(device.name, Door.DRA, "team/claim", 0.0, owner="uid-claim", state=HoldState.PREPARED)


class Kubelet:
    """What it says, and when it was asked; ``broken``: the reader fails with what no kubelet does."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.listed: tuple[Holding, ...] = ()
        self.allocatable: frozenset[tuple[str, str]] = frozenset()
        self.faults: tuple[str, ...] = ()
        self.broken = False
        self.looked_up: list[list[tuple[str, str]]] = []

    has_records = True

    async def holding(self, ids: Collection[tuple[str, str]], gone: Callable[[str], bool]) -> Holding | None:
        self.looked_up.append(sorted(ids))
        return next((item for item in self.listed if (item.resource, item.id) in ids), None)

    async def read(self) -> Reading:
        self.asked.append(round(now(), 3))
        if self.broken:
            raise RuntimeError("the reader is at fault")
        began = asyncio.get_running_loop().time()
        if self.faults:
            return Reading(began, None, None, None, self.faults)
        return Reading(began, self.listed, (), self.allocatable)


class Processes:
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

    def __init__(self, *devices: Device, rule: Rule = BOTH, relieves: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.kubelet, self.processes, self.events = Kubelet(), Processes(), Events()
        self.changes: list[float] = []
        self.books = Bookkeeping(
            Settings(inventory=InventorySettings(recorded=Path("/nowhere"))),
            Edges(lambda: 1e9 + loop.time(), loop.time, lambda: 0.0),
            self.processes,
            events=self.events,
            changed=lambda: self.changes.append(round(now(), 3)),
            reader=self.kubelet,
        )
        self.books.draining.off = ""
        self.books.begin(relieves=relieves)
        self.books.place(Snapshot(1, devices), (rule,))

    async def run(self) -> None:
        await asyncio.sleep(LATER)
        await self.books.run()

    async def rest(self) -> None:
        """Nobody reads the kubelet."""

    def settled(self) -> bool:
        return self.books.standing(frozenset(), frozenset()).settled


Story = Callable[[Desk], Awaitable[None]]


def play(story: Story, *devices: Device, rule: Rule = BOTH, relieves: bool = False) -> Desk:
    return beside(lambda: Desk(*devices, rule=rule, relieves=relieves), Desk.run, story)


async def wait_for(doubted: Awaitable[None] | None) -> None:
    assert doubted is not None
    await doubted


def test_where_there_is_one_door_the_kubelet_is_read_seldom_and_what_it_says_stays_known() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(1)
        for _ in range(200):
            assert desk.books.unknown_because() == ""
            await asyncio.sleep(1)

    desk = play(story, gpu(0), rule=PLUGIN)
    assert desk.kubelet.asked == [LATER, 0.5, *(0.5 + ALONE.every * number for number in range(1, 5))]


def test_when_another_door_opens_the_kubelet_is_read_at_once_and_more_often_from_then_on() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(30)
        desk.books.shared()
        await asyncio.sleep(25)

    assert play(story, gpu(0)).kubelet.asked == [LATER, 0.5, 30.0, 40.0, 50.0]


def test_a_grant_is_looked_for_in_a_moment_and_a_pod_that_is_gone() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(5)
        desk.books.allocate(GPU, offered(gpu(0)))
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/pod"),)
        await asyncio.sleep(5)
        desk.books.pods_changed()
        await asyncio.sleep(1)
        desk.books.kubelet_changed()
        await asyncio.sleep(1)

    assert play(story, gpu(0)).kubelet.asked == [LATER, 0.5, 5.3, 10.1, 11.3]


def test_while_nobody_reads_nothing_is_said_to_be_unknown_and_nothing_is_woken() -> None:
    async def story(desk: Desk) -> None:
        desk.books.kubelet_changed()
        desk.books.pods_changed()
        desk.books.changed_over()
        desk.books.allocate(GPU, offered(gpu(0)))
        assert desk.books.unknown_because() == ""
        assert not desk.books.keeper.known

    beside(lambda: Desk(gpu(0)), Desk.rest, story)


@pytest.mark.parametrize(("relieves", "until"), [(False, 0.5), (True, 3.5)])
def test_what_an_instance_before_may_have_answered_is_read_as_soon_as_it_cannot_any_more(
    relieves: bool, until: float
) -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(until - 0.01)
        assert desk.books.keeper.standing().known
        assert not desk.settled()
        await asyncio.sleep(0.02)
        assert desk.settled()

    assert play(story, gpu(0), relieves=relieves).kubelet.asked == [LATER, until]


def test_a_kubelet_that_has_changed_over_is_read_half_a_second_later_and_once() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(1)
        desk.books.changed_over()
        for _ in range(10):
            await asyncio.sleep(0.1)
            desk.books.changed_over()
        assert desk.settled()
        await asyncio.sleep(5)

    assert play(story, gpu(0), relieves=True).kubelet.asked == [LATER, 1.5]


def test_a_kubelet_that_cannot_be_read_is_not_asked_more_often_because_another_instance_was_there() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.faults = ("no socket is there",)
        for _ in range(100):
            desk.books.changed_over()
            await asyncio.sleep(0.1)
        assert not desk.settled()
        assert desk.books.unknown_because().endswith("no socket is there")

    assert len(play(story, gpu(0), relieves=True).kubelet.asked) <= 6


def test_the_doors_are_shown_anew_when_a_reading_says_something_else_and_not_otherwise() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(5)
        desk.changes.clear()
        desk.books.standing(frozenset(), frozenset())
        await asyncio.sleep(60)
        assert desk.changes == []
        # What the kubelet counts is no hold, and the doors wait for it all the same.
        desk.kubelet.allocatable = frozenset({(GPU, "GPU-0")})
        desk.books.kubelet_changed()
        await asyncio.sleep(1)
        assert len(desk.changes) == 1
        desk.books.standing(frozenset(), frozenset())
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/pod"),)
        desk.books.kubelet_changed()
        await asyncio.sleep(1)
        assert len(desk.changes) > 1

    play(story, gpu(0))


def test_the_doors_are_told_when_what_is_known_is_too_old_to_be_believed() -> None:
    async def story(desk: Desk) -> None:
        desk.books.shared()
        await asyncio.sleep(5)
        desk.kubelet.faults = ("gone",)
        desk.changes.clear()
        known = [desk.books.standing(frozenset(), frozenset({"gpu-0"}))]
        while asyncio.get_running_loop().time() < START + 100:
            await asyncio.sleep(5)
            if desk.changes:
                known.append(desk.books.standing(frozenset(), frozenset({"gpu-0"})))
                desk.changes.clear()
        assert [state.known for state in known] == [True, False]
        # A live pod is proved only as long as the kubelet is read.
        assert [bool(state.contested) for state in known] == [True, False]

    play(story, gpu(0))


def test_a_device_that_is_withdrawn_is_counted_by_the_kubelet_until_it_was_read_after_that() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(5)
        desk.books.shown(shown(gpu(0)))
        await asyncio.sleep(1)
        asked = len(desk.kubelet.asked)
        desk.books.shown(shown(gpu(0), healthy=False))
        assert desk.books.standing(frozenset(), frozenset()).at_kubelet == {"gpu-0"}
        assert desk.books.standing(frozenset(), frozenset()).offered == frozenset()
        await asyncio.sleep(1)
        assert len(desk.kubelet.asked) == asked + 1
        assert desk.books.standing(frozenset(), frozenset()).at_kubelet == frozenset()
        assert desk.books.standing(frozenset(), frozenset()).listed == {"gpu-0"}

    play(story, gpu(0))


def test_what_is_shown_healthy_goes_on_to_be_counted_however_often_the_kubelet_is_read() -> None:
    async def story(desk: Desk) -> None:
        desk.books.shown(shown(gpu(0)))
        for _ in range(5):
            await asyncio.sleep(50)
            assert desk.books.standing(frozenset(), frozenset()).at_kubelet == {"gpu-0"}

    play(story, gpu(0))


def test_a_pod_that_lost_is_counted_each_time_and_told_of_once_a_minute() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(20)
        desk.books.ledger.take("uid-claim", [claimed(gpu(0))])
        for _ in range(100):
            with pytest.raises(HeldError, match="device gpu-0 is held through the dra door by team/claim"):
                desk.books.allocate(GPU, offered(gpu(0)))
            await asyncio.sleep(QUIET / 50)

    desk = play(story, gpu(0))
    assert desk.books.counters.conflicts == {Door.PLUGIN: 100, Door.DRA: 0}
    text = (
        "a pod that asked for nvidia.com/gpu was refused: device gpu-0 is held through the dra door by team/claim "
        "(uid-claim); its controller makes a new one"
    )
    assert desk.events.told == [(EventType.WARNING, "PodLostDevice", text)] * 2


def test_a_device_that_a_pod_has_by_all_that_is_known_is_looked_up_before_it_is_given_again() -> None:
    one, other = offered(gpu(0)), offered(gpu(1))

    async def story(desk: Desk) -> None:
        # What came before this process is not known yet.
        await wait_for(desk.books.doubted(GPU, one))
        await asyncio.sleep(20)
        assert desk.books.doubted(GPU, [*one, *other]) is None
        desk.books.allocate(GPU, one)
        # Its pod may have ended, or it is the same pod's init container.
        await wait_for(desk.books.doubted(GPU, [*one, *other]))
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "c", pod="team/first"),)
        with pytest.raises(HeldError, match="gpu-0 is held through the plugin door by team/first, for which"):
            await wait_for(desk.books.doubted(GPU, [*one, *other]))

    desk = play(story, gpu(0), gpu(1))
    assert desk.kubelet.looked_up == [[(GPU, "GPU-0")]] * 3
    assert desk.books.counters.conflicts == {Door.PLUGIN: 1, Door.DRA: 0}
    text = (
        "a pod that asked for nvidia.com/gpu was refused: device gpu-0 is held through the plugin door by team/first, "
        "for which the kubelet has it on record; its controller makes a new one"
    )
    assert desk.events.told == [(EventType.WARNING, "PodLostDevice", text)]


def test_a_device_that_a_pod_has_under_another_id_or_resource_is_looked_up_by_that() -> None:
    renamed = [OfferedDevice("gpu-0", gpu(0), healthy=True)]

    async def story(desk: Desk) -> None:
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "c", pod="team/first"),)
        await asyncio.sleep(20)
        for resource, words in (
            (GPU, "team/first, for which"),
            ("corp/gpu", "team/first as nvidia.com/gpu, for which"),
        ):
            with pytest.raises(HeldError, match=words):
                await wait_for(desk.books.doubted(resource, renamed))

    assert play(story, gpu(0)).kubelet.looked_up == [[(GPU, "GPU-0")]] * 2


def test_a_storm_of_pods_that_lost_does_not_push_everything_else_out_of_sight() -> None:
    devices = [gpu(number) for number in range(100)]

    async def story(desk: Desk) -> None:
        await asyncio.sleep(20)
        desk.books.ledger.take("uid-claim", [claimed(device) for device in devices])
        for device in devices:
            with pytest.raises(HeldError):
                desk.books.allocate(GPU, offered(device))

    assert len(play(story, *devices).events.told) == TOLD


def test_a_draining_device_is_released_by_a_person() -> None:
    async def story(desk: Desk) -> None:
        desk.processes.left = (Process(41, "python3"),)
        desk.books.draining.update([gpu(0)], [], 0.0, 0.0)
        await asyncio.sleep(15)
        assert desk.books.draining.left("gpu-0") == (Process(41, "python3"),)
        assert not desk.books.release("gpu-1")
        desk.changes.clear()
        assert desk.books.release("gpu-0")
        assert desk.changes
        assert desk.books.ledger.all == ()

    assert play(story, gpu(0)).events.reasons() == ["DeviceDraining"]


def test_whoever_waits_is_told_when_everything_is_known() -> None:
    async def story(desk: Desk) -> None:
        told: list[float] = []
        desk.books.standing(frozenset(), frozenset())
        desk.books.told = lambda: told.append(round(now(), 3))
        await desk.books.known()
        assert round(now(), 3) == 3.5
        assert told[-1] == 3.5

    play(story, gpu(0), relieves=True)


@pytest.mark.parametrize("part", ["reader", "driver"])
def test_a_part_that_fails_ends_the_books_with_its_reason(part: str) -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.broken = part == "reader"
        desk.processes.broken = part == "driver"
        with pytest.raises(ExceptionGroup) as failed:
            await desk.books.run()
        (fault,) = failed.value.exceptions
        assert "is at fault" in str(fault)
        assert desk.books.unknown_because() == ""

    beside(lambda: Desk(gpu(0)), Desk.rest, story)
