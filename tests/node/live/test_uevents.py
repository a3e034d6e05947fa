"""Which uevents are hints, and what becomes of lost events, broken streams and a missing libudev."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.events import EventBus
from node.inventory.live.udev import (
    EventState,
    Reach,
    UdevStream,
    Uevent,
    UeventsUnavailable,
    choose,
    look,
    multicast_groups,
)
from node.inventory.live.uevents import Relevance, UeventMonitor
from node.inventory.source import HardwareHint
from tests.making.events import heard
from tests.node.live.streams import FakeStream
from tests.waiting import eventually

PCI = Uevent("add", "pci", "/sys/devices/pci0000:80/0000:80:01.0")
VETH = Uevent("add", "net", "/sys/devices/virtual/net/veth1")
NETDEV = Uevent("move", "net", "/sys/devices/pci0000:80/0000:80:01.0/net/ens1np0")


@asynccontextmanager
async def monitoring(
    stream: FakeStream, reach: Reach | None = None, relevant: Callable[[Uevent], bool] | None = None
) -> AsyncIterator[tuple[UeventMonitor, list[HardwareHint], asyncio.Task[None]]]:
    bus = EventBus()
    hints = heard(bus, HardwareHint)
    monitor = UeventMonitor(
        bus,
        relevant or Relevance("/nonexistent"),
        reach=lambda: reach or Reach(EventState.UDEV),
        open_stream=stream.open,
    )
    running = asyncio.create_task(monitor.run())
    await eventually(lambda: hints or running.done())
    try:
        yield monitor, hints, running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError, ValueError):
            await running


async def test_beginning_to_listen_is_a_hint_and_so_is_each_event_that_counts() -> None:
    stream = FakeStream()
    async with monitoring(stream) as (monitor, hints, _):
        assert len(hints) == 1
        stream.give(PCI, VETH, NETDEV)
        await eventually(lambda: monitor.events.total == 3)
        assert len(hints) == 3
        assert monitor.hints == 2
    assert stream.closed
    assert monitor.state is EventState.POLLING


async def test_lost_events_are_counted_and_are_a_hint_and_listening_goes_on() -> None:
    stream = FakeStream()
    async with monitoring(stream) as (monitor, hints, running):
        stream.give(OSError(errno.ENOBUFS, "No buffer space available"), VETH)
        await eventually(lambda: monitor.events.total == 1)
        assert monitor.overflows.total == 1
        assert len(hints) == 2
        stream.give(PCI)
        await eventually(lambda: len(hints) == 3)
        assert not running.done()


@pytest.mark.parametrize("error", [OSError(errno.EBADF, "Bad file descriptor"), ValueError("strange")])
async def test_a_stream_that_breaks_ends_the_part_with_its_error(error: Exception) -> None:
    stream = FakeStream()
    async with monitoring(stream) as (_, _, running):
        stream.give(error)
        await eventually(running.done)
        assert running.exception() is error
    assert stream.closed


async def test_a_thousand_events_leave_turns_to_others() -> None:
    stream = FakeStream()
    async with monitoring(stream) as (monitor, _, _):
        stream.give(*[PCI] * 1000)
        turns = 0
        while monitor.events.total < 1000:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 10


async def test_the_kernel_is_listened_to_where_udev_cannot_be() -> None:
    stream = FakeStream(refuse={EventState.UDEV: UeventsUnavailable("it listens to nobody", "mount it")})
    async with monitoring(stream) as (monitor, _, _):
        assert monitor.state is EventState.KERNEL
        assert monitor.hint == "mount it"


async def test_no_stream_is_opened_where_no_event_can_arrive() -> None:
    stream = FakeStream()
    async with monitoring(stream, Reach(EventState.POLLING, "nothing arrives", "more rights")) as (monitor, _, _):
        assert stream.opened == []
        assert (monitor.state, monitor.missed, monitor.hint) == (EventState.POLLING, "nothing arrives", "more rights")


def test_a_missing_libudev_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyudev._ctypeslib.utils.find_library", lambda _: None)
    with pytest.raises(UeventsUnavailable) as raised:
        UdevStream(EventState.KERNEL)
    wanted = "no uevents: libudev cannot be used (No library named udev); add libudev.so.1 to the image"
    assert str(raised.value) == wanted


def test_a_real_stream_listens_to_the_kernels_group() -> None:
    stream = UdevStream(EventState.KERNEL)
    assert multicast_groups(stream.fileno()) == 1
    descriptor = stream.fileno()
    stream.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_cannot_be_told_of_an_event_counts() -> None:
    assert Relevance("/nonexistent")(Uevent("", "", ""))


def test_modules_count_when_they_differ_from_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "module/mlx5_core").mkdir(parents=True)
    (tmp_path / "module/ext4").mkdir()
    relevant = Relevance(str(tmp_path))
    known = Uevent("add", "module", "/sys/module/mlx5_core")
    late = Uevent("add", "module", "/sys/module/nvidia")
    assert not relevant(known)
    # Tried and failed: the event is there, the module is not.
    assert not relevant(late)
    (tmp_path / "module/nvidia").mkdir()
    assert relevant(late)
    assert not relevant(late)
    (tmp_path / "module/nvidia").rmdir()
    assert relevant(Uevent("remove", "module", "/sys/module/nvidia"))
    assert not relevant(Uevent("remove", "module", "/sys/module/ext4"))


@pytest.mark.parametrize(
    ("name", "wanted"), [("vhost-net", True), ("rdma_cm", True), ("loop-control", False), ("vfio", True)]
)
def test_misc_devices_count_by_name(name: str, wanted: bool) -> None:
    event = Uevent("add", "misc", f"/sys/devices/virtual/misc/{name}")
    assert Relevance("/nonexistent")(event) is wanted


def test_the_best_way_to_hear_is_chosen_and_what_is_missed_is_named() -> None:
    assert choose(udevd=True, host_network=True, host_users=True) == Reach(EventState.UDEV)
    bare = choose(udevd=False, host_network=True, host_users=True)
    assert (bare.state, bare.missed) == (EventState.KERNEL, "")
    assert bare.hint == "for names that udev gives: a read-only hostPath mount of /run/udev"
    pod = choose(udevd=False, host_network=False, host_users=True)
    assert pod.state is EventState.KERNEL
    assert pod.missed == "this network namespace is not the host's: the host's interfaces send no events here"
    assert pod.hint == "hostNetwork: true in the pod's spec and a read-only hostPath mount of /run/udev"
    assert choose(udevd=True, host_network=False, host_users=True).hint == "hostNetwork: true in the pod's spec"
    users = choose(udevd=True, host_network=True, host_users=False)
    assert users.state is EventState.POLLING
    assert users.hint == "hostUsers: true in the pod's spec"


def test_a_process_sees_in_which_namespaces_it_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/control").touch()
    (tmp_path / "proc/sys/net/core").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/uid_map").write_text("         0          0 4294967295\n")
    assert look(tmp_path / "run", tmp_path / "proc").state is EventState.KERNEL
    (tmp_path / "proc/sys/net/core/dev_weight").write_text("64\n")
    assert look(tmp_path / "run", tmp_path / "proc").state is EventState.UDEV
    (tmp_path / "proc/self/uid_map").write_text("         0     100000      65536\n")
    assert look(tmp_path / "run", tmp_path / "proc").state is EventState.POLLING
