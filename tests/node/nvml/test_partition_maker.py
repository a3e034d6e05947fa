"""Partitions are made, used, removed and remembered as their owners need it, and those of others stay."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from node.inventory.facts import NvmlFacts
from node.inventory.model import Device
from node.inventory.nvidia.partition_journal import MadePart
from node.partitions import PartitionError, PartitionMaker
from tests.making import mig_tables
from tests.making.mig_nodes import BLACKWELL, Start, a100, foreign, node
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc


def test_it_is_a_partition_maker(start: Start) -> None:
    maker: PartitionMaker = start().maker
    assert maker.made() == ()


@pytest.mark.parametrize(
    ("facts", "profile", "at"),
    [
        (node(), "3g.40gb", 4),
        (node(table=mig_tables.H200_141GB, gigabytes=141), "1g.35gb", 2),
        (node(table=mig_tables.B200_180GB, architecture=BLACKWELL, gigabytes=180), "7g.180gb", 0),
        (node(table=mig_tables.A30, architecture=7, gigabytes=24), "2g.12gb+me", 2),
        (a100(), "1g.5gb+me", 6),
    ],
)
def test_a_partition_is_made_where_it_was_allocated_with_the_mode_turned_on(
    start: Start, facts: NvmlFacts, profile: str, at: int
) -> None:
    made = start(facts)
    shape = made.shape(profile, at)
    partition = made.maker.make(made.gpu(), shape, "claim")
    assert made.facts().gpus[0].mig_mode == 1
    device = next(each for each in made.devices() if each.parent is not None)
    assert (device.uuid, device.text("profile"), device.capacity) == (partition.uuid, profile, shape.capacity)
    assert made.existing() == [(profile, shape.start, shape.size)]
    assert (partition.owner, partition.gpu, partition.gpu_uuid) == ("claim", made.gpu().name, made.gpu().uuid)


def test_made_again_for_the_same_owner_it_is_the_same(start: Start) -> None:
    made = start()
    partitions = {made.maker.make(made.gpu(), made.shape("1g.10gb", 3), "claim") for _ in range(3)}
    assert len(partitions) == 1
    assert made.maker.made() == tuple(partitions)
    assert len(made.existing()) == 1


def test_an_agent_that_starts_again_knows_what_was_made(start: Start) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 3), "claim")
    again = start()
    assert again.maker.made() == (partition,)
    assert again.maker.make(again.gpu(), again.shape("1g.10gb", 3), "claim") == partition


def test_one_owner_has_several_partitions_and_all_go(start: Start) -> None:
    made = start()
    for index, profile, at in ((0, "1g.10gb", 0), (0, "3g.40gb", 4), (1, "2g.20gb", 2)):
        made.maker.make(made.gpu(index), made.shape(profile, at, index), "claim")
    other = made.maker.make(made.gpu(), made.shape("1g.10gb", 1), "other")
    removed = made.maker.remove("claim")
    assert {partition.shape.profile for partition in removed} == {"1g.10gb", "3g.40gb", "2g.20gb"}
    assert made.existing(0) == [("1g.10gb", 1, 1)]
    assert made.existing(1) == []
    assert made.maker.made() == (other,)
    assert made.facts().gpus[1].mig_mode == 1


def test_nothing_is_removed_of_an_owner_without_partitions(start: Start) -> None:
    assert start().maker.remove("nobody") == ()


def test_the_drivers_capability_files_come_and_go(start: Start, tmp_path: Path) -> None:
    made = start()
    folder = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig"
    made.maker.make(made.gpu(), made.shape("3g.40gb", 4), "claim")
    assert "DeviceFileMinor: 21\n" in (folder / "gi2/access").read_text()
    assert "DeviceFileMinor: 22\n" in (folder / "gi2/ci0/access").read_text()
    made.maker.remove("claim")
    assert list(folder.iterdir()) == []


def test_a_place_that_is_taken_names_what_takes_it(start: Start) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "one")
    foreign(made, "1g.10gb", 6)
    with pytest.raises(PartitionError) as refused:
        made.maker.make(made.gpu(), made.shape("3g.40gb", 4), "two")
    assert refused.value.pending
    assert refused.value.reason == (
        "the GPU has no room for 3g.40gb at memory slices 4-7: 1g.10gb at memory slice 5 (made for one), "
        "1g.10gb at memory slice 6 (not made by ostler)"
    )
    assert [partition.owner for partition in made.maker.made()] == ["one"]
    made.maker.remove("one")


def test_engines_that_are_used_up_are_told_as_such(start: Start) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb+me", 0), "one")
    with pytest.raises(
        PartitionError, match=r"no room for 1g.10gb.me at memory slice 3, because other instances use up"
    ):
        made.maker.make(made.gpu(), made.shape("1g.10gb+me", 3), "two")


def test_what_is_made_for_one_is_not_made_for_another(start: Start) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "one")
    with pytest.raises(PartitionError, match=r"1g.10gb at memory slice 5 is made for one") as refused:
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "two")
    assert refused.value.pending


# What others have made.


def test_an_instance_of_others_is_used_and_stays(start: Start) -> None:
    made = start()
    foreign(made, "2g.20gb", 2)
    existing = next(each for each in made.devices() if each.parent is not None)
    partition = made.maker.make(made.gpu(), made.shape("2g.20gb", 2), "claim")
    assert partition.uuid == existing.uuid
    assert made.journal.entries()[0].makes is MadePart.NOTHING
    assert made.maker.remove("claim") == (partition,)
    assert made.existing() == [("2g.20gb", 2, 2)]


def test_a_gpu_instance_of_others_without_a_compute_instance_gets_one_and_stays(start: Start) -> None:
    made = start()
    calls = foreign(made, "2g.20gb", 2, compute=False)
    made.maker.make(made.gpu(), made.shape("2g.20gb", 2), "claim")
    assert made.existing() == [("2g.20gb", 2, 2)]
    made.maker.remove("claim")
    assert made.existing() == []
    assert len(calls.all_instances(calls.gpu(made.gpu().uuid or "", "0"))) == 1


def test_an_instance_of_others_that_is_used_is_not_allocated(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    foreign(made, "2g.20gb", 2)
    mig_hardware.processes(0, (4711, 1), mig=0)
    with pytest.raises(
        PartitionError, match=r"2g.20gb at memory slices 2-3 exists, and process 4711 uses it"
    ) as refused:
        made.maker.make(made.gpu(), made.shape("2g.20gb", 2), "claim")
    assert refused.value.pending
    assert made.maker.made() == ()


def test_an_instance_that_is_divided_is_not_allocated(start: Start) -> None:
    made = start()
    calls = foreign(made, "2g.20gb", 2, compute=False)
    instance = calls.all_instances(calls.gpu(made.gpu().uuid or "", "0"))[0]
    for _ in range(2):
        calls.create_compute_instance(instance, 0)
    with pytest.raises(PartitionError, match=r"is divided into 2 compute instances.*-dci -gi"):
        made.maker.make(made.gpu(), made.shape("2g.20gb", 2), "claim")
    assert len(made.existing()) == 2
    assert made.maker.made() == ()


def test_what_others_removed_is_made_again_and_forgotten(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.reset(0)
    assert made.existing() == []
    assert made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim") == partition
    mig_hardware.reset(0)
    assert made.maker.remove("claim") == (partition,)
    assert made.maker.made() == ()


# What is in use.


def test_a_partition_in_use_is_not_removed(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.processes(0, (4711, 1), (4712, 1), mig=0)
    with pytest.raises(PartitionError, match=r"processes 4711, 4712 still uses? 1g.10gb at memory slice 5") as refused:
        made.maker.remove("claim")
    assert refused.value.pending
    assert made.maker.sweep(frozenset()) == ()
    assert made.existing() == [("1g.10gb", 5, 1)]
    mig_hardware.processes(0, mig=0)
    assert len(made.maker.remove("claim")) == 1
    assert made.existing() == []


@pytest.mark.parametrize("call", ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"])
def test_a_driver_that_says_in_use_is_asked_again_later(start: Start, mig_hardware: InjectedNvml, call: str) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.fail(call, "IN_USE")
    with pytest.raises(PartitionError, match=r"1g.10gb at memory slice 5 is in use") as refused:
        made.maker.remove("claim")
    assert refused.value.pending
    mig_hardware.fail(call, "OK")
    assert len(made.maker.remove("claim")) == 1
    assert made.existing() == []


@pytest.mark.parametrize("error", ["NOT_FOUND", "NOT_SUPPORTED"])
def test_what_is_gone_when_it_is_destroyed_is_removed(start: Start, mig_hardware: InjectedNvml, error: str) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.fail("nvmlGpuInstanceDestroy", error)
    assert len(made.maker.remove("claim")) == 1
    assert made.maker.made() == ()


def test_a_sweep_removes_what_nobody_has(start: Start) -> None:
    made = start()
    for owner, at in (("one", 0), ("two", 1), ("three", 2)):
        made.maker.make(made.gpu(), made.shape("1g.10gb", at), owner)
    foreign(made, "3g.40gb", 4)
    again = start()
    removed = again.maker.sweep(frozenset({"two"}))
    assert {partition.owner for partition in removed} == {"one", "three"}
    assert again.existing() == [("1g.10gb", 1, 1), ("3g.40gb", 4, 4)]


# MIG mode.


# What goes wrong.


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstances",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceGetInfo",
    ],
)
def test_a_call_that_fails_leaves_nothing_that_a_sweep_does_not_remove(
    start: Start, mig_hardware: InjectedNvml, call: str
) -> None:
    made = start()
    mig_hardware.fail(call, "UNKNOWN")
    with pytest.raises(PartitionError, match=f"{call} says UNKNOWN"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.fail(call, "OK")
    made.maker.sweep(frozenset())
    assert made.maker.made() == ()
    foreign(made, "7g.80gb", 0)


def test_a_failing_question_costs_no_partition_that_was_complete(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.fail("nvmlGpuInstanceGetComputeInstances", "UNKNOWN")
    with pytest.raises(PartitionError):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.fail("nvmlGpuInstanceGetComputeInstances", "OK")
    assert made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim") == partition


def test_a_lost_gpu_keeps_its_partitions_on_record(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    mig_hardware.lose(0)
    with pytest.raises(PartitionError, match="GPU_IS_LOST"):
        made.maker.remove("claim")
    assert made.maker.made() == (partition,)


def test_nothing_is_made_while_nvml_is_closed(start: Start) -> None:
    made = start()
    gpu, shape = made.gpu(), made.shape("1g.10gb", 5)
    made.close()
    with pytest.raises(PartitionError, match="NVML is not open") as refused:
        made.maker.make(gpu, shape, "claim")
    assert refused.value.pending


def test_nothing_is_made_without_a_record(start: Start, tmp_path: Path) -> None:
    made = start()
    (tmp_path / "state").rmdir() if (tmp_path / "state").exists() else None
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(PartitionError, match="no partition is made without a record of it"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert made.existing() == []


def test_gpus_do_not_wait_for_each_other(start: Start, mig_hardware: InjectedNvml) -> None:
    made = start()
    gpus: list[Device] = [made.gpu(0), made.gpu(1)]
    shapes = [made.shape("1g.10gb", 0, index) for index in range(2)]
    mig_hardware.hang("nvmlDeviceCreateGpuInstanceWithPlacement", gpu=0)
    slow = threading.Thread(target=made.maker.make, args=(gpus[0], shapes[0], "slow"))
    slow.start()
    made.maker.make(gpus[1], shapes[1], "quick")
    mig_hardware.release()
    slow.join()
    assert {partition.owner for partition in made.maker.made()} == {"slow", "quick"}


# The journal.


# Layouts.
