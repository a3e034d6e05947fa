"""Sweeps look at everything, again and again, whatever hangs, vanishes or breaks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.clocks import AHEAD, SYSTEM, SystemClocks
from node.events import EventBus
from node.health.kernel.links import Watched
from node.health.signal import Condition, Trouble
from node.inventory.live import sweeps as sweeps_module
from node.inventory.live.function_files import FunctionFiles
from node.inventory.live.sweeps import Sweeps, Swept
from node.inventory.sysfs.files import read_now
from node.rules import Rule
from tests.making.kernel_devices import CARING, address_of, gpu, nic, snapshot
from tests.waiting import CountedWakeups, background, eventually

GPU, NIC = "gpu-0000-83-00-0", "nic-0000-84-00-0"
WRONG = {"current_link_width": "8", "max_link_width": "16"}


def function(root: Path, name: str, **attributes: str) -> Path:
    folder = root / "sys/bus/pci/devices" / address_of(name)
    folder.mkdir(parents=True)
    for attribute, text in attributes.items():
        (folder / attribute).write_text(f"{text}\n")
    return folder


@asynccontextmanager
async def sweeping(
    files: FunctionFiles, *, rules: tuple[Rule, ...] = CARING, interval: float = 0.02, hangs: float = 5.0
) -> AsyncIterator[tuple[Sweeps, list[Mapping[str, tuple[Condition, ...]]]]]:
    found: list[Mapping[str, tuple[Condition, ...]]] = []
    bus = EventBus()
    bus.subscribe(Swept, lambda swept: found.append(swept.found))
    sweeps = Sweeps(files, bus, interval=interval, hangs=hangs, soon=0.0)
    sweeps.show(snapshot(gpu(), nic()), rules)
    async with background(sweeps.run()):
        yield sweeps, found


async def test_every_device_is_in_every_look(tmp_path: Path) -> None:
    function(tmp_path, GPU, **WRONG)
    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0))
    async with sweeping(files) as (sweeps, found):
        await eventually(lambda: len(found) >= 3)
        assert sweeps.hung == frozenset()
    trouble = Condition(Trouble.PCIE_LINK, "its link runs with 8 of 16 PCIe lanes")
    assert all(each == {GPU: (trouble,), NIC: ()} for each in found)


async def test_a_hint_brings_the_next_sweep_forward(tmp_path: Path) -> None:
    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0))
    async with sweeping(files, interval=1000.0) as (sweeps, found):
        await eventually(lambda: len(found) == 1)
        sweeps.hint()
        await eventually(lambda: len(found) == 2)


async def test_sweeps_that_find_nothing_new_do_not_wake_the_loop(tmp_path: Path) -> None:
    function(tmp_path, GPU, **WRONG)
    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0))
    woken = CountedWakeups(asyncio.get_running_loop())
    # Longer than AHEAD: sweeps that take no part of an interval would meet the loop's ticks.
    async with sweeping(files, interval=2.5 * AHEAD) as (_, found):
        await eventually(lambda: len(found) >= 4)
        assert woken.count == 1
        (tmp_path / "sys/bus/pci/devices" / address_of(GPU) / "current_link_width").write_text("16\n")
        await eventually(lambda: found[-1][GPU] == ())
        assert woken.count == 2


async def test_a_thread_that_does_not_wake_by_itself_is_woken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that follows the system's clock lasts an hour longer if that is set back by an hour."""
    monkeypatch.setattr(sweeps_module, "until_ahead", lambda *_: 3600.0)
    function(tmp_path, GPU, **WRONG)
    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0))
    async with sweeping(files) as (_, found):
        await eventually(lambda: len(found) >= 3)


async def test_a_sweep_that_ends_after_the_tick_wakes_the_loop(tmp_path: Path) -> None:
    function(tmp_path, GPU, **WRONG)
    loop = asyncio.get_running_loop()
    blocks, answers = threading.Event(), threading.Event()
    blocked: list[float] = []

    def read(path: str) -> str:
        if blocks.is_set():
            blocked.append(loop.time())
            answers.wait(30)
        return read_now(path)

    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0), read)
    async with sweeping(files, interval=2 * AHEAD, hangs=1000.0) as (_, found):
        await eventually(lambda: len(found) >= 1)
        blocks.set()
        await eventually(lambda: bool(blocked) and loop.time() > blocked[0] + 2 * AHEAD)
        count = len(found)
        blocks.clear()
        answers.set()
        await eventually(lambda: len(found) > count)


async def test_a_hint_during_a_sweep_is_followed_by_another_one(tmp_path: Path) -> None:
    function(tmp_path, GPU, **WRONG)
    answers = threading.Event()
    blocked: list[str] = []

    def read(path: str) -> str:
        blocked.append(path)
        answers.wait(30)
        return read_now(path)

    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0), read)
    async with sweeping(files, interval=1000.0, hangs=1000.0) as (sweeps, found):
        await eventually(lambda: bool(blocked))
        sweeps.hint()
        await eventually(lambda: not sweeps._woken.is_set())
        answers.set()
        await eventually(lambda: len(found) == 2)


async def test_a_file_that_hangs_costs_its_own_device_only_and_as_long_as_it_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    function(tmp_path, GPU, **WRONG)
    function(tmp_path, NIC, **WRONG)
    answers = threading.Event()
    hanging = True

    def read(path: str) -> str:
        if hanging and address_of(GPU) in path:
            answers.wait(30)
        return read_now(path)

    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0), read)
    async with sweeping(files, hangs=0.05) as (sweeps, found):
        await eventually(lambda: any(NIC in each for each in found))
        assert sweeps.hung == {address_of(GPU)}
        assert not any(GPU in each for each in found)
        hanging = False
        answers.set()
        await eventually(lambda: any(GPU in each for each in found))
        assert sweeps.hung == frozenset()
    assert {record.message for record in caplog.records} == {"reading a device's state hangs; it is left out"}


async def test_a_fifo_in_the_place_of_an_attribute_does_not_hang(tmp_path: Path) -> None:
    folder = function(tmp_path, GPU, max_link_width="16")
    os.mkfifo(folder / "current_link_width")
    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0))
    async with sweeping(files) as (_, found):
        await eventually(lambda: len(found) >= 2)
    assert found[0] == {GPU: (), NIC: ()}


async def test_a_bug_of_a_reading_is_raised_for_whoever_supervises() -> None:
    class Broken(FunctionFiles):
        def function(self, device: Watched) -> tuple[Condition, ...]:
            raise ZeroDivisionError

    sweeps = Sweeps(Broken("/nonexistent", "", SYSTEM), EventBus())
    sweeps.show(snapshot(gpu()), CARING)
    with pytest.raises(ZeroDivisionError):
        await sweeps.run()


async def test_when_too_many_hang_no_more_threads_are_made(tmp_path: Path) -> None:
    names = [f"gpu-0000-{number:02x}-00-0" for number in range(0x20, 0x30)]
    for name in names:
        function(tmp_path, name, **WRONG)
    answers = threading.Event()

    def read(path: str) -> str:
        answers.wait(30)
        return read_now(path)

    files = FunctionFiles(f"{tmp_path}/sys", str(tmp_path), SystemClocks(monotonic=lambda: 0.0), read)
    before = threading.active_count()
    async with sweeping(files, hangs=0.02) as (sweeps, found):
        sweeps.show(snapshot(*map(gpu, names)), CARING)
        await eventually(lambda: len(sweeps.hung) == 4)
        count = sweeps.count
        await eventually(lambda: len(found) == count)
        assert threading.active_count() <= before + 4
        assert sweeps.stopped
        answers.set()
        await eventually(lambda: any(len(each) == len(names) for each in found))
        assert not sweeps.stopped
