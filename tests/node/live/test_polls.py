"""What has no event is seen by comparing: InfiniBand ports, MIG instances, device files, modules, partitions."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.directories import KernelInotify
from node.events import EventBus
from node.inventory.live import signatures
from node.inventory.live.polls import FolderEvents, PolledChange, Polls
from node.inventory.live.signatures import Signature
from tests.making.events import heard
from tests.waiting import background, eventually


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def changes(signature: Signature, change: Callable[[], object], *, fresh: bool = True) -> bool:
    """Whether the signature differs after ``change``, having been the same twice before."""
    before = signature(True)
    assert signature(fresh) == before
    change()
    return signature(fresh) != before


def port(sys: Path, device: str, layer: str) -> Path:
    folder = sys / "class/infiniband" / device / "ports/1"
    write(folder / "link_layer", f"{layer}\n")
    write(folder / "state", "4: ACTIVE\n")
    return folder / "state"


def test_an_infiniband_ports_state_is_seen(tmp_path: Path) -> None:
    state = port(tmp_path, "mlx5_0", "InfiniBand")
    read = signatures.infiniband_ports(str(tmp_path))
    assert changes(read, lambda: state.write_text("1: DOWN\n"))
    assert changes(read, lambda: port(tmp_path, "mlx5_1", "InfiniBand"))
    assert changes(read, lambda: shutil.rmtree(tmp_path / "class/infiniband/mlx5_0"))


def test_ports_that_come_are_looked_for_when_hardware_may_have_come(tmp_path: Path) -> None:
    state = port(tmp_path, "mlx5_0", "InfiniBand")
    read = signatures.infiniband_ports(str(tmp_path))
    assert changes(read, lambda: state.write_text("1: DOWN\n"), fresh=False)
    assert not changes(read, lambda: port(tmp_path, "mlx5_1", "InfiniBand"), fresh=False)
    assert changes(read, lambda: port(tmp_path, "mlx5_2", "InfiniBand"))


def test_ports_that_follow_something_else_are_not_asked(tmp_path: Path) -> None:
    roce, virtual = port(tmp_path, "mlx5_0", "Ethernet"), port(tmp_path, "mlx5_1", "InfiniBand")
    write(tmp_path / "class/infiniband/mlx5_1/device/physfn")
    read = signatures.infiniband_ports(str(tmp_path))
    assert not changes(read, lambda: roce.write_text("1: DOWN\n"))
    assert not changes(read, lambda: virtual.write_text("1: DOWN\n"))


def test_mig_instances_are_seen_at_every_level(tmp_path: Path) -> None:
    mig = tmp_path / "driver/nvidia/capabilities/gpu0/mig"
    read = signatures.mig_instances(str(tmp_path))
    assert changes(read, lambda: mig.mkdir(parents=True))
    assert changes(read, (mig / "gi1").mkdir)
    assert changes(read, (mig / "gi1/ci0").mkdir)
    assert changes(read, lambda: (mig / "gi1").rename(mig / "gi2"))
    assert changes(read, lambda: shutil.rmtree(mig / "gi2/ci0"))
    assert changes(read, lambda: shutil.rmtree(tmp_path / "driver"))


def test_another_nvidia_module_is_seen(tmp_path: Path) -> None:
    read = signatures.nvidia_module(str(tmp_path), str(tmp_path))
    assert changes(read, lambda: (tmp_path / "module/nvidia").mkdir(parents=True))
    assert changes(read, lambda: write(tmp_path / "driver/nvidia/version", "550.54.15\n"))
    assert changes(read, lambda: write(tmp_path / "driver/nvidia/version", "570.86.10\n"))


def test_the_module_is_looked_at_when_hardware_may_have_come(tmp_path: Path) -> None:
    read = signatures.nvidia_module(str(tmp_path), str(tmp_path))
    assert not changes(read, lambda: (tmp_path / "module/nvidia").mkdir(parents=True), fresh=False)
    assert changes(read, lambda: write(tmp_path / "driver/nvidia/version", "550.54.15\n"))


def test_compute_partitions_are_seen(tmp_path: Path) -> None:
    generation = tmp_path / "class/kfd/kfd/topology/generation_id"
    write(generation, "2\n")
    assert changes(signatures.compute_partitions(str(tmp_path)), lambda: generation.write_text("3\n"))


def test_compute_partitions_are_looked_for_when_hardware_may_have_come(tmp_path: Path) -> None:
    generation = tmp_path / "class/kfd/kfd/topology/generation_id"
    read = signatures.compute_partitions(str(tmp_path))
    assert not changes(read, lambda: write(generation, "2\n"), fresh=False)
    assert changes(read, lambda: generation.write_text("3\n"), fresh=False)
    assert changes(read, lambda: shutil.rmtree(tmp_path / "class"))


def test_a_file_that_a_vendor_has_watched_is_seen_once_its_function_is_known(tmp_path: Path) -> None:
    status = tmp_path / "bus/pci/drivers/habanalabs/0000:33:00.0/status"
    read = signatures.watched_files(str(tmp_path))
    assert not changes(read, lambda: write(status, "operational\n"), fresh=False)
    assert changes(read, lambda: status.write_text("malfunction\n"))
    read(True)
    assert changes(read, lambda: status.write_text("operational\n"), fresh=False)
    assert changes(read, lambda: shutil.rmtree(status.parent))


async def test_signatures_are_told_when_hardware_may_have_come() -> None:
    told: list[bool] = []
    news: int | None = 0
    polls = Polls(EventBus(), [told.append], news=lambda: news, interval=0.001)

    async def next_ones() -> list[bool]:
        told.clear()
        await eventually(lambda: len(told) >= 3)
        return told[:3]

    async with polling(polls):
        assert (await next_ones())[1:] == [False, False]
        news = 1
        await eventually(lambda: True in told)
        assert (await next_ones())[1:] == [False, False]
        news = None
        assert (await next_ones())[1:] == [True, True]


def test_device_files_that_matter_are_seen_and_others_are_not(tmp_path: Path) -> None:
    write(tmp_path / "dev/null")
    read = signatures.device_files(str(tmp_path))
    assert changes(read, lambda: write(tmp_path / "dev/nvidia0"))
    assert changes(read, lambda: write(tmp_path / "dev/vfio/7"))
    assert changes(read, lambda: write(tmp_path / "dev/vfio/devices/vfio0"))
    assert changes(read, lambda: shutil.rmtree(tmp_path / "dev/vfio"))
    assert changes(read, lambda: write(tmp_path / "dev/vfio/devices/vfio0"))
    assert changes(read, lambda: write(tmp_path / "dev/infiniband/uverbs0"))
    assert not changes(read, lambda: write(tmp_path / "dev/loop7"))
    assert changes(read, (tmp_path / "dev/nvidia0").unlink)


def test_hardware_is_compared_by_name_where_no_event_arrives(tmp_path: Path) -> None:
    read = signatures.hardware(str(tmp_path))
    assert changes(read, lambda: (tmp_path / "bus/pci/devices/0000:01:00.0").mkdir(parents=True))
    assert changes(read, lambda: (tmp_path / "bus/pci/drivers/vfio-pci/0000:01:00.0").mkdir(parents=True))
    assert changes(read, lambda: (tmp_path / "class/net/eth1").mkdir(parents=True))


def test_virtual_interfaces_are_not_compared(tmp_path: Path) -> None:
    for name, place in (("eth0", "pci0000:00/net/eth0"), ("veth1", "virtual/net/veth1")):
        write(tmp_path / "devices" / place / "operstate", "up\n")
        (tmp_path / "class/net").mkdir(parents=True, exist_ok=True)
        (tmp_path / "class/net" / name).symlink_to(f"../../devices/{place}")
    read = signatures.interfaces(str(tmp_path))
    assert not changes(read, lambda: write(tmp_path / "devices/virtual/net/veth1/operstate", "down\n"))
    assert changes(read, lambda: write(tmp_path / "devices/pci0000:00/net/eth0/operstate", "down\n"))


@asynccontextmanager
async def polling(polls: Polls) -> AsyncIterator[asyncio.Task[None]]:
    async with background(polls.run()) as running:
        yield running


async def test_a_difference_is_a_hint_on_the_loop() -> None:
    value = 1
    hints: list[str] = []
    bus = EventBus()
    bus.subscribe(PolledChange, lambda _: hints.append(threading.current_thread().name))
    polls = Polls(bus, [lambda _: value], interval=0.001)
    async with polling(polls):
        await eventually(lambda: polls.count >= 3)
        assert hints == []
        value = 2
        await eventually(lambda: hints)
        assert hints == [threading.current_thread().name]
        assert polls.changes.total == 1


async def test_a_stand_in_is_read_only_while_it_is_needed() -> None:
    needed: list[int] = []
    bus = EventBus()
    hints = heard(bus, PolledChange)
    reads: list[int] = []

    def read(_: bool) -> int:
        reads.append(1)
        return len(reads)

    polls = Polls(bus, [], [(lambda: bool(needed), read)], interval=0.001)
    async with polling(polls):
        await eventually(lambda: polls.count >= 3)
        assert reads == []
        needed.append(1)
        # The first reading has nothing to be compared with, the second differs from it.
        await eventually(lambda: hints)
        assert len(reads) >= 2


async def test_one_that_is_needed_again_looks_at_everything(tmp_path: Path) -> None:
    needed: list[int] = [1]
    told: list[bool] = []

    def read(fresh: bool) -> int:
        told.append(fresh)
        return 1

    polls = Polls(EventBus(), [], [(lambda: bool(needed), read)], news=lambda: 1, interval=0.001)
    async with polling(polls):
        await eventually(lambda: len(told) >= 3)
        assert not any(told[1:])
        needed.clear()
        count = polls.count
        await eventually(lambda: polls.count >= count + 2)
        told.clear()
        needed.append(1)
        await eventually(lambda: len(told) >= 3)
        assert told[:3] == [True, False, False]


async def test_a_signature_with_a_bug_ends_the_part_with_its_error() -> None:
    def broken(_: bool) -> int:
        raise LookupError("a bug")

    polls = Polls(EventBus(), [broken], interval=0.001)
    with pytest.raises(LookupError, match="a bug"):
        await polls.run()


async def test_a_reading_that_hangs_keeps_nobody_from_ending() -> None:
    hanging = threading.Event()
    polls = Polls(EventBus(), [lambda _: hanging.wait(60)], interval=0.001)
    async with polling(polls):
        await eventually(lambda: polls._reading_since is not None)
        stalled = [polls.stalled]
        polls._reading_since = asyncio.get_running_loop().time() - 11.0
        stalled.append(polls.stalled)
        assert stalled == [False, True]
    hanging.set()


NEVER = 3600.0
"""An interval that ends in no test, so that only an event can cause a reading."""


@asynccontextmanager
async def listed(dev_root: Path) -> AsyncIterator[tuple[Polls, list[PolledChange]]]:
    """Device files below a folder, listed after events alone."""
    bus = EventBus()
    changes = heard(bus, PolledChange)
    files = signatures.device_files(str(dev_root))
    folders = FolderEvents(signatures.device_folders(str(dev_root)))
    polls = Polls(bus, [], reported=[files], folders=folders, interval=NEVER, seldom=NEVER)
    async with polling(polls):
        await eventually(lambda: polls.count >= 1 and polls._covered)
        yield polls, changes


async def test_an_event_reports_a_device_file_that_comes_and_one_that_goes(tmp_path: Path) -> None:
    write(tmp_path / "dev/null")
    async with listed(tmp_path) as (_, changes):
        file = tmp_path / "dev/nvidia0"
        write(file)
        await eventually(lambda: len(changes) == 1)
        file.unlink()
        await eventually(lambda: len(changes) == 2)
        write(file)
        await eventually(lambda: len(changes) == 3)


async def test_a_folder_that_comes_is_watched_from_then_on(tmp_path: Path) -> None:
    write(tmp_path / "dev/null")
    folder = tmp_path / "dev/vfio"
    steps: tuple[Callable[[], object], ...] = (
        folder.mkdir,
        (folder / "devices").mkdir,
        (folder / "devices/vfio0").touch,
        (folder / "7").touch,
        (folder / "devices/vfio0").unlink,
    )
    async with listed(tmp_path) as (_, changes):
        for number, step in enumerate(steps, 1):
            step()
            await eventually(lambda number=number: len(changes) == number)  # type: ignore[misc]


async def test_an_event_of_a_file_that_matters_to_nobody_is_no_change(tmp_path: Path) -> None:
    write(tmp_path / "dev/null")
    async with listed(tmp_path) as (polls, changes):
        write(tmp_path / "dev/loop7")
        await eventually(lambda: polls.count >= 2)
        assert not changes


async def test_a_node_where_everything_is_reported_is_read_seldom(tmp_path: Path) -> None:
    write(tmp_path / "dev/null")
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    bus = EventBus()
    changes = heard(bus, PolledChange)
    polls = Polls(
        bus,
        [signatures.mig_instances(str(tmp_path))],
        reported=[signatures.device_files(str(tmp_path))],
        folders=FolderEvents(signatures.device_folders(str(tmp_path))),
        interval=0.001,
        seldom=NEVER,
        attentive=0.0,
    )

    def pace() -> float:
        return polls._pace(asyncio.get_running_loop().time())

    async with polling(polls):
        await eventually(lambda: pace() == NEVER)
        # The driver is loaded, which is an event, and instances are none.
        (tmp_path / "driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
        polls.hint()
        await eventually(lambda: len(changes) == 1 and pace() == 0.001)
        (tmp_path / "driver/nvidia/capabilities/gpu0/mig/gi1").mkdir()
        await eventually(lambda: len(changes) == 2)


async def test_a_hint_is_followed_by_frequent_readings_for_a_while() -> None:
    polls = Polls(EventBus(), [lambda _: ""], interval=0.001, seldom=NEVER, attentive=0.0)
    async with polling(polls):
        await eventually(lambda: polls._pace(asyncio.get_running_loop().time()) == NEVER)
        polls._attentive = NEVER
        count = polls.count
        polls.hint()
        await eventually(lambda: polls.count >= count + 3)


class NoInstance(KernelInotify):
    def __init__(self) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class NoWatch(KernelInotify):
    def add_watch(self, path: str, mask: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("inotify", [NoInstance, NoWatch])
async def test_without_inotify_device_files_are_polled(tmp_path: Path, inotify: type[KernelInotify]) -> None:
    write(tmp_path / "dev/null")
    bus = EventBus()
    changes = heard(bus, PolledChange)
    polls = Polls(
        bus,
        [],
        reported=[signatures.device_files(str(tmp_path))],
        folders=FolderEvents(signatures.device_folders(str(tmp_path)), inotify),
        interval=0.001,
        seldom=NEVER,
        attentive=0.0,
    )
    async with polling(polls):
        await eventually(lambda: polls.count >= 3)
        write(tmp_path / "dev/nvidia0")
        await eventually(lambda: changes)


def test_a_missing_folder_is_covered_by_its_parent_and_not_by_another(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    with_parent = FolderEvents([f"{tmp_path}/dev", f"{tmp_path}/dev/vfio"])
    without = FolderEvents([f"{tmp_path}/dev", f"{tmp_path}/dev/vfio/devices"])
    absent = FolderEvents([f"{tmp_path}/other"])
    for folders, covered in ((with_parent, True), (without, False), (absent, False)):
        assert not folders.cover()
        assert folders.open() is not None
        assert folders.cover() is covered
        folders.close()
        assert not folders.cover()
