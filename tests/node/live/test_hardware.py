"""The whole of it: parts are supervised, the status says what is seen late and what to do."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.clocks import SYSTEM, SystemClocks
from node.events import EventBus
from node.health.kernel.links import Watched
from node.health.signal import Condition, Look, Trouble
from node.inventory.live.function_files import FunctionFiles
from node.inventory.live.hardware import LiveHardware
from node.inventory.live.sweeps import Sweeps
from node.inventory.live.udev import EventState, Reach, Uevent, UeventsUnavailable
from node.inventory.model import DeviceKind, SourceState
from node.inventory.source import ScanWanted
from node.rules import Rule, Selector
from tests.making.kernel_devices import CARING, gpu, nic, snapshot
from tests.node.live.streams import FakeStream
from tests.waiting import background, eventually


@asynccontextmanager
async def live(
    root: Path, stream: FakeStream, reach: Reach | None = None
) -> AsyncIterator[tuple[LiveHardware, list[float]]]:
    woken: list[float] = []
    bus = EventBus()
    bus.subscribe(ScanWanted, lambda _: woken.append(asyncio.get_running_loop().time()))
    hardware = LiveHardware(
        bus,
        sys=root / "sys",
        proc=root / "proc",
        dev_root=root,
        sweeps=False,
        reach=lambda: reach or Reach(EventState.UDEV),
        open_stream=stream.open,
    )
    wanted = (reach or Reach(EventState.UDEV)).state

    def all_have_begun() -> bool:
        """Each part asks for a scan when it begins, and begins when this machine comes to it."""
        begun = hardware.state is wanted or (stream.refuse and hardware.status().state is SourceState.FAILED)
        return bool(
            begun and woken and hardware._links.listening and hardware._polls.count and hardware._wakeups._timer is None
        )

    assert hardware.status().state is SourceState.WAITING
    async with background(hardware.run()):
        await eventually(all_have_begun)
        yield hardware, woken


async def test_it_wakes_once_when_it_begins_and_soon_after_an_event(tmp_path: Path) -> None:
    stream = FakeStream()
    async with live(tmp_path, stream) as (hardware, woken):
        begun = len(woken)
        assert begun <= len(hardware._parts), "once, or once for each part where they do not begin together"
        stream.give(*[Uevent("add", "pci", "/sys/devices/pci0000:80/0000:80:01.0")] * 20)
        await eventually(lambda: len(woken) > begun)
        status = hardware.status()
        assert (status.name, status.state, status.detail) == (
            "events",
            SourceState.OK,
            "from udev, rtnetlink and polls",
        )
        assert hardware._uevents.events.total == 20
        assert hardware._wakeups.count.total == len(woken) == begun + 1
        assert hardware.state is EventState.UDEV


async def test_a_part_that_cannot_start_is_said_once_and_replaced_by_comparing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = UeventsUnavailable("libudev cannot be used", "add libudev.so.1 to the image")
    stream = FakeStream(refuse={EventState.UDEV: refusal, EventState.KERNEL: refusal})
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        async with live(tmp_path, stream) as (hardware, woken):
            status = hardware.status()
            assert status.state is SourceState.FAILED
            assert status.detail == (
                "hardware changes may be noticed late: "
                "no uevents: libudev cannot be used; add libudev.so.1 to the image"
            )
            count = hardware._polls.count
            await eventually(lambda: hardware._polls.count >= count + 2)
            before = len(woken)
            (tmp_path / "sys/bus/pci/devices/0000:01:00.0").mkdir()
            await eventually(lambda: len(woken) > before)
            # Listening comes back by itself.
            stream.refuse.clear()
            await eventually(lambda: hardware.state is EventState.UDEV)
    assert [record.message for record in caplog.records] == [
        "listening to hardware failed in part; comparing folders instead"
    ]


async def test_what_is_seen_of_health_is_told_before_anybody_is_woken(tmp_path: Path) -> None:
    told: list[Look | ScanWanted] = []
    stream, bus = FakeStream(), EventBus()
    bus.subscribe(ScanWanted, told.append)
    bus.subscribe(Look, told.append)
    hardware = LiveHardware(
        bus,
        sys=tmp_path / "sys",
        proc=tmp_path / "proc",
        dev_root=tmp_path,
        clocks=SystemClocks(clock=lambda: 7.0),
        reach=lambda: Reach(EventState.UDEV),
        open_stream=stream.open,
    )
    device = gpu()
    hardware.observe(snapshot(device), CARING)
    async with background(hardware.run()):
        await eventually(lambda: hardware.state is EventState.UDEV and hardware.swept)
        await eventually(lambda: Look("sysfs", 7.0, {device.name: ()}) in told)
        told.clear()
        stream.give(Uevent("unbind", "pci", f"/sys/devices/pci0000:80/{device.pci_address}"))
        await eventually(lambda: ScanWanted() in told)
        unbound = Condition(Trouble.UNBOUND, "no driver is bound to it")
        assert told[0] == Look("kernel", 7.0, {device.name: (unbound,)})


async def test_ports_are_asked_often_only_where_nics_are_offered(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    folder.mkdir(parents=True)
    (folder / "link_layer").write_text("InfiniBand\n")
    (folder / "state").write_text("4: ACTIVE\n")

    async def read_twice(hardware: LiveHardware) -> None:
        count = hardware._polls.count
        await eventually(lambda: hardware._polls.count >= count + 2)

    async with live(tmp_path, FakeStream()) as (hardware, woken):
        hardware.observe(snapshot(gpu(), nic()), (Rule("example.com/gpu", Selector(kinds=(DeviceKind.GPU,))),))
        await read_twice(hardware)
        before = len(woken)
        (folder / "state").write_text("1: DOWN\n")
        await read_twice(hardware)
        assert len(woken) == before
        hardware.observe(snapshot(gpu(), nic()), (Rule("example.com/nic", Selector(vendors=("mellanox",))),))
        await eventually(lambda: len(woken) > before)
        await read_twice(hardware)
        await eventually(lambda: hardware._wakeups._timer is None)
        before = len(woken)
        (folder / "state").write_text("4: ACTIVE\n")
        await eventually(lambda: len(woken) > before)


async def test_where_nobody_judges_health_nothing_is_swept(tmp_path: Path) -> None:
    async with live(tmp_path, FakeStream()) as (hardware, _):
        assert not hardware.swept
        assert hardware._sweeps not in hardware._parts


async def test_a_device_whose_state_cannot_be_read_is_named(tmp_path: Path) -> None:
    async with live(tmp_path, FakeStream()) as (hardware, _):
        answers = threading.Event()

        class Hanging(FunctionFiles):
            def function(self, device: Watched) -> tuple[Condition, ...]:
                answers.wait(30)
                return ()

        hardware._sweeps = Sweeps(Hanging("", "", SYSTEM), EventBus(), hangs=0.01)
        hardware._sweeps.show(snapshot(gpu()), CARING)
        sweeping = asyncio.create_task(hardware._sweeps.run())
        await eventually(lambda: hardware._sweeps.hung)
        words = "hardware changes may be noticed late: 0000:83:00.0 does not answer when its state is read"
        assert hardware.status().detail == words
        answers.set()
        await eventually(lambda: not hardware._sweeps.hung)
        assert hardware.status().state is SourceState.OK
        sweeping.cancel()


async def test_it_is_told_when_no_files_are_looked_at_any_more(tmp_path: Path) -> None:
    async with live(tmp_path, FakeStream()) as (hardware, _):

        class Stopped(Sweeps):
            hung = frozenset({"0000:83:00.0"})
            stopped = True

        hardware._sweeps = Stopped(FunctionFiles("", "", SystemClocks(monotonic=lambda: 0.0)), EventBus())
        assert hardware.status().detail == (
            "hardware changes may be noticed late: 0000:83:00.0 does not answer when its state is read; "
            "ostler checks no device's files until one of these answers"
        )


async def test_a_stream_that_breaks_is_opened_anew(tmp_path: Path) -> None:
    stream = FakeStream()
    async with live(tmp_path, stream) as (hardware, _):
        stream.give(OSError(errno.EBADF, "Bad file descriptor"))
        await eventually(lambda: len(stream.opened) == 2)
        await eventually(lambda: hardware.state is EventState.UDEV)


async def test_a_pod_without_the_hosts_network_is_told_what_it_needs(tmp_path: Path) -> None:
    missed = Reach(EventState.KERNEL, "its interfaces are not heard of", "hostNetwork: true in the pod's spec")
    async with live(tmp_path, FakeStream(), missed) as (hardware, _):
        assert hardware.status().detail == (
            "hardware changes may be noticed late: its interfaces are not heard of; "
            "set hostNetwork: true in the pod's spec"
        )


async def test_where_interfaces_matter_to_nobody_a_pod_without_the_hosts_network_is_well(tmp_path: Path) -> None:
    missed = Reach(EventState.KERNEL, "its interfaces are not heard of", "hostNetwork: true in the pod's spec")
    async with live(tmp_path, FakeStream(), missed) as (hardware, _):
        assert hardware.status(interfaces=False).state is SourceState.OK


async def test_a_user_namespace_without_uevents_is_told_whatever_the_rules_are_about(tmp_path: Path) -> None:
    missed = Reach(EventState.POLLING, "this user namespace gets no uevents", "hostUsers: true in the pod's spec")
    async with live(tmp_path, FakeStream(), missed) as (hardware, _):
        assert "gets no uevents" in hardware.status(interfaces=False).detail
