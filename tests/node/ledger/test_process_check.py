"""Looks at devices are made in a thread and told once."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from node.clocks import SystemClocks
from node.events import EventBus, EventType
from node.inventory.model import Device
from node.ledger.events import HoldsObserver, ReleasesAdvanced, ReleasesPending
from node.ledger.process_check import PendingRelease, ProcessCheck
from node.ledger.processes import Process
from tests.making.events import RecordedEvents
from tests.making.offered_devices import gpu
from tests.making.virtual_time import beside
from tests.waiting import background, eventually

ONE, TWO = gpu(0), gpu(1)
LEFT = Process(4711, "/usr/bin/python3")


class _Driver(HoldsObserver):
    """Processes by device; ``problem`` is what it says instead. Counts what it is told and asked."""

    def __init__(self) -> None:
        self.processes: dict[str, tuple[Process, ...] | None] = {}
        self.problem = ""
        self.asked: list[str] = []
        self.found: list[int] = []
        self.threads: set[str] = set()
        self.told = 0
        self.bus = EventBus()
        self.bus.subscribe(ReleasesAdvanced, self.tell)
        self.events = RecordedEvents()
        self.pending_release = PendingRelease()

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        self.asked.append(device.name)
        self.threads.add(threading.current_thread().name)
        if self.problem:
            raise OSError(self.problem)
        return self.processes.get(device.name, ())

    def looked(self, processes: int) -> None:
        self.found.append(processes)

    def tell(self, _: ReleasesAdvanced) -> None:
        self.told += 1

    def lookout(self, clock: Callable[[], float]) -> ProcessCheck:
        return ProcessCheck(
            self.pending_release,
            self,
            self.bus,
            clocks=SystemClocks(monotonic=clock),
            events=self.events,
            observer=self,
        )


def play(driver: _Driver, story: Callable[[ProcessCheck], Awaitable[None]]) -> None:
    beside(lambda: driver.lookout(asyncio.get_running_loop().time), ProcessCheck.run, story)


def _update(driver: _Driver, *devices: Device) -> None:
    driver.pending_release.update(devices, (), asyncio.get_running_loop().time(), 1000.0)
    driver.bus.publish(ReleasesPending())


def test_devices_are_free_after_one_look_at_each() -> None:
    driver = _Driver()

    async def story(lookout: ProcessCheck) -> None:
        _update(driver, ONE, TWO)
        await asyncio.sleep(100)

    play(driver, story)
    assert driver.asked == [ONE.name, TWO.name]
    assert (driver.told, driver.found, driver.events.events) == (1, [0, 0], [])
    assert not driver.pending_release.wanted()


def test_a_driver_that_tells_of_no_processes_is_told_of_once_for_all_devices(caplog: pytest.LogCaptureFixture) -> None:
    driver = _Driver()
    driver.processes[ONE.name] = driver.processes[TWO.name] = None

    async def story(lookout: ProcessCheck) -> None:
        for devices in ((TWO, ONE), (), (ONE,)):
            _update(driver, *devices)
            await asyncio.sleep(100)

    with caplog.at_level(logging.WARNING, "ostler.holds"):
        play(driver, story)
    assert sorted(driver.asked) == [ONE.name, ONE.name, TWO.name]
    assert not driver.pending_release.wanted()
    assert [(record.message, vars(record)["devices"]) for record in caplog.records] == [
        ("ostler does not check for left-over processes: the driver reports none", f"{ONE.name} and {TWO.name}")
    ]


def test_holds_that_order_no_other_check_do_not_wake_it() -> None:
    driver, passes = _Driver(), 0
    driver.processes[ONE.name] = (LEFT,)

    def lookout() -> ProcessCheck:
        def clock() -> float:
            nonlocal passes
            passes += 1
            return asyncio.get_running_loop().time()

        return driver.lookout(clock)

    async def story(lookout: ProcessCheck) -> None:
        _update(driver, ONE)
        await asyncio.sleep(100)
        before = passes
        for _ in range(50):
            driver.bus.publish(ReleasesPending())
            await asyncio.sleep(0)
        assert passes == before
        _update(driver, ONE, TWO)
        await asyncio.sleep(0.1)
        assert driver.asked[-1] == TWO.name

    beside(lookout, ProcessCheck.run, story)


def test_a_left_over_process_is_told_once_and_its_end_too() -> None:
    driver = _Driver()
    driver.processes[ONE.name] = (LEFT,)

    async def story(lookout: ProcessCheck) -> None:
        _update(driver, ONE)
        await asyncio.sleep(100)
        assert driver.told == 1
        driver.processes[ONE.name] = ()
        await asyncio.sleep(15)

    play(driver, story)
    told = (
        f"{ONE.name} is free, but still used by process 4711 (python3); it is offered again when no process uses it, "
        f"or after 'ostler holds release {ONE.name}'"
    )
    assert driver.events.events == [
        (EventType.WARNING, "DeviceDraining", told),
        (EventType.NORMAL, "DeviceDrained", f"no process is left on {ONE.name}"),
    ]
    assert driver.told == 2
    assert 12 <= len(driver.asked) <= 16


@pytest.mark.parametrize("left", [(LEFT,), ()], ids=["still there", "ended"])
def test_what_was_found_before_a_device_was_free_is_another_story(left: tuple[Process, ...]) -> None:
    driver = _Driver()
    driver.processes[ONE.name] = (LEFT,)

    async def story(lookout: ProcessCheck) -> None:
        _update(driver, ONE)
        await asyncio.sleep(20)
        driver.pending_release.release(ONE.name)
        _update(driver)
        driver.processes[ONE.name] = left
        _update(driver, ONE)
        await asyncio.sleep(20)

    play(driver, story)
    # Each drain is told of, and no end of one that nobody was told of.
    assert driver.events.reasons == ["DeviceDraining"] * (1 + len(left))


def test_a_driver_that_fails_is_asked_again_and_keeps_the_device() -> None:
    driver = _Driver()
    driver.problem = "NVML does not answer"

    async def story(lookout: ProcessCheck) -> None:
        _update(driver, ONE)
        await asyncio.sleep(30)
        assert driver.pending_release.wanted()[ONE.name].holder.endswith("which fails: NVML does not answer")
        driver.problem = ""
        await asyncio.sleep(15)

    play(driver, story)
    assert not driver.pending_release.wanted()
    assert driver.found == [0]


async def test_a_driver_that_hangs_does_not_hold_up_the_loop() -> None:
    driver, going_on = _Driver(), threading.Event()
    answer = driver.compute_processes

    def hang(device: Device) -> tuple[Process, ...] | None:
        going_on.wait(60)
        return answer(device)

    driver.compute_processes = hang  # type: ignore[method-assign]
    lookout = driver.lookout(time.monotonic)
    driver.pending_release.update((ONE,), (), time.monotonic(), 1000.0)
    async with background(lookout.run()):
        began = time.monotonic()
        for _ in range(10):
            await asyncio.sleep(0)
        assert time.monotonic() - began < 30  # The driver hangs for a minute.
        assert driver.pending_release.wanted()
        going_on.set()
        await eventually(lambda: not driver.pending_release.wanted())
        assert threading.current_thread().name not in driver.threads
