"""Partitions are made, used, removed and remembered as their owners need it, and those of others stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from node.files import read_record, write_record
from node.inventory.facts import Ancestor, NvmlFacts
from node.inventory.model import Device
from node.inventory.nvidia.nvml_mig import MigCalls
from node.inventory.nvidia.partition_journal import FILE, SCHEMA, MadePart
from node.inventory.nvidia.partition_maker import LAYOUT
from node.partitions import MigLayout, PartitionError, PartitionMaker
from tests.making import mig_tables
from tests.making.mig_nodes import BLACKWELL, BOOT, Partitioned, a100, node
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc

Start = Callable[..., Partitioned]


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedNvml:
    made = InjectedNvml(tmp_path / "driver", node(2))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NVML_STUB_PROC", str(tmp_path / "proc"))
    return made


@pytest.fixture
def start(hardware: InjectedNvml, tmp_path: Path) -> Iterator[Start]:
    opened: list[Partitioned] = []

    def begin(facts: NvmlFacts | None = None, **options: object) -> Partitioned:
        for each in opened:
            each.close()
        if facts is not None:
            hardware.serve(facts)
        opened.append(Partitioned(hardware.library, tmp_path / "state", **options))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def foreign(made: Partitioned, profile: str, at: int, *, compute: bool = True, gpu: int = 0) -> MigCalls:
    """Somebody else makes an instance."""
    binding = made.source.sessions.current
    assert binding is not None
    calls, device = MigCalls(binding), made.gpu(gpu)
    handle = calls.gpu(device.uuid or "", device.index)
    calls.set_mode(handle, on=True)
    shape = made.shape(profile, at, gpu)
    instance = calls.create_instance(handle, shape.profile_id, shape.start, shape.size)
    if compute:
        calls.create_compute_instance(instance, calls.full_profile(instance)[0])
    return calls


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


def test_an_instance_of_others_that_is_used_is_not_given_out(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    foreign(made, "2g.20gb", 2)
    hardware.processes(0, (4711, 1), mig=0)
    with pytest.raises(
        PartitionError, match=r"2g.20gb at memory slices 2-3 exists, and process 4711 uses it"
    ) as refused:
        made.maker.make(made.gpu(), made.shape("2g.20gb", 2), "claim")
    assert refused.value.pending
    assert made.maker.made() == ()


def test_an_instance_that_is_divided_is_not_given_out(start: Start) -> None:
    made = start()
    calls = foreign(made, "2g.20gb", 2, compute=False)
    instance = calls.all_instances(calls.gpu(made.gpu().uuid or "", "0"))[0]
    for _ in range(2):
        calls.create_compute_instance(instance, 0)
    with pytest.raises(PartitionError, match=r"is divided into 2 compute instances.*-dci -gi"):
        made.maker.make(made.gpu(), made.shape("2g.20gb", 2), "claim")
    assert len(made.existing()) == 2
    assert made.maker.made() == ()


def test_what_others_removed_is_made_again_and_forgotten(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.reset(0)
    assert made.existing() == []
    assert made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim") == partition
    hardware.reset(0)
    assert made.maker.remove("claim") == (partition,)
    assert made.maker.made() == ()


# What is in use.


def test_a_partition_in_use_is_not_removed(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.processes(0, (4711, 1), (4712, 1), mig=0)
    with pytest.raises(PartitionError, match=r"processes 4711, 4712 still uses? 1g.10gb at memory slice 5") as refused:
        made.maker.remove("claim")
    assert refused.value.pending
    assert made.maker.sweep(frozenset()) == ()
    assert made.existing() == [("1g.10gb", 5, 1)]
    hardware.processes(0, mig=0)
    assert len(made.maker.remove("claim")) == 1
    assert made.existing() == []


@pytest.mark.parametrize("call", ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"])
def test_a_driver_that_says_in_use_is_asked_again_later(start: Start, hardware: InjectedNvml, call: str) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.fail(call, "IN_USE")
    with pytest.raises(PartitionError, match=r"1g.10gb at memory slice 5 is in use") as refused:
        made.maker.remove("claim")
    assert refused.value.pending
    hardware.fail(call, "OK")
    assert len(made.maker.remove("claim")) == 1
    assert made.existing() == []


@pytest.mark.parametrize("error", ["NOT_FOUND", "NOT_SUPPORTED"])
def test_what_is_gone_when_it_is_destroyed_is_removed(start: Start, hardware: InjectedNvml, error: str) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.fail("nvmlGpuInstanceDestroy", error)
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


def test_a_gpu_that_computes_keeps_its_mode(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    hardware.processes(0, (4711, 1))
    with pytest.raises(PartitionError, match="MIG mode cannot be turned on while process 4711 uses the GPU") as refused:
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert refused.value.pending
    facts = made.facts().gpus[0]
    assert (facts.mig_mode, facts.mig_pending) == (0, 0)
    assert made.maker.made() == ()


def test_a_gpu_that_must_be_reset_and_is_held_says_what_has_to_end(start: Start, hardware: InjectedNvml) -> None:
    made = start(a100())
    hardware.set({"gpu0.held": 1})
    with pytest.raises(PartitionError, match=r"MIG mode cannot be turned on now \(IN_USE\): programs hold") as refused:
        made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert refused.value.pending
    facts = made.facts().gpus[0]
    assert (facts.mig_mode, facts.mig_pending) == (0, 0)
    hardware.set({"gpu0.held": None})
    made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert made.existing() == [("1g.5gb", 5, 1)]


def test_a_virtual_machine_keeps_the_mode_pending_until_it_starts_again(start: Start, hardware: InjectedNvml) -> None:
    made = start(a100())
    hardware.set({"gpu0.vm": 1})
    with pytest.raises(PartitionError, match="restart the virtual machine") as refused:
        made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert refused.value.pending
    assert made.facts().gpus[0].mig_pending == 1
    hardware.reset(0)
    made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    assert made.existing() == [("1g.5gb", 5, 1)]


def test_a_rule_that_does_not_allow_it_keeps_the_mode(start: Start) -> None:
    made = start(may_switch=False)
    with pytest.raises(PartitionError, match=r"which its rule does not allow; turn it on \(nvidia-smi -i 0 -mig 1\)"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert made.facts().gpus[0].mig_mode == 0


def test_a_gpu_leaves_mig_mode_when_it_has_no_instances(start: Start) -> None:
    made = start()
    made.maker.leave_partitioning(made.gpu())
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    foreign(made, "1g.10gb", 0, compute=False)
    with pytest.raises(PartitionError) as refused:
        made.maker.leave_partitioning(made.gpu())
    assert refused.value.pending
    assert refused.value.reason == (
        "MIG mode stays on while it has instances: 1g.10gb at memory slice 0 (not made by ostler), "
        "1g.10gb at memory slice 5 (made for claim)"
    )
    assert made.facts().gpus[0].mig_mode == 1


def test_mig_mode_goes_off(start: Start) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    made.maker.remove("claim")
    made.maker.leave_partitioning(made.gpu())
    assert made.facts().gpus[0].mig_mode == 0


def test_a_pending_mode_is_taken_back(start: Start, hardware: InjectedNvml) -> None:
    made = start(a100())
    hardware.set({"gpu0.vm": 1})
    with pytest.raises(PartitionError):
        made.maker.make(made.gpu(), made.shape("1g.5gb", 5), "claim")
    made.maker.leave_partitioning(made.gpu())
    assert made.facts().gpus[0].mig_pending == 0


def test_without_rights_it_says_what_to_do(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    hardware.fail("nvmlDeviceSetMigMode", "NO_PERMISSION")
    with pytest.raises(PartitionError, match="nvmlDeviceSetMigMode says NO_PERMISSION; run ostler as root"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")


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
    start: Start, hardware: InjectedNvml, call: str
) -> None:
    made = start()
    hardware.fail(call, "UNKNOWN")
    with pytest.raises(PartitionError, match=f"{call} says UNKNOWN"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.fail(call, "OK")
    made.maker.sweep(frozenset())
    assert made.maker.made() == ()
    foreign(made, "7g.80gb", 0)


def test_a_failing_question_costs_no_partition_that_was_complete(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.fail("nvmlGpuInstanceGetComputeInstances", "UNKNOWN")
    with pytest.raises(PartitionError):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.fail("nvmlGpuInstanceGetComputeInstances", "OK")
    assert made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim") == partition


def test_a_lost_gpu_keeps_its_partitions_on_record(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    partition = made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.lose(0)
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
    with pytest.raises(PartitionError, match="no partition is made or removed without a record of it"):
        made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert made.existing() == []


def test_gpus_do_not_wait_for_each_other(start: Start, hardware: InjectedNvml) -> None:
    made = start()
    gpus: list[Device] = [made.gpu(0), made.gpu(1)]
    shapes = [made.shape("1g.10gb", 0, index) for index in range(2)]
    hardware.hang("nvmlDeviceCreateGpuInstanceWithPlacement", gpu=0)
    slow = threading.Thread(target=made.maker.make, args=(gpus[0], shapes[0], "slow"))
    slow.start()
    made.maker.make(gpus[1], shapes[1], "quick")
    hardware.release()
    slow.join()
    assert {partition.owner for partition in made.maker.made()} == {"slow", "quick"}


# The journal.


def test_partitions_of_another_boot_are_void_and_what_exists_is_somebody_elses(
    start: Start, hardware: InjectedNvml
) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    hardware.boot()
    foreign(made, "1g.10gb", 5)
    again = start(boot="another boot")
    assert again.maker.made() == ()
    assert again.maker.sweep(frozenset()) == ()
    again.maker.make(again.gpu(), again.shape("1g.10gb", 5), "claim")
    again.maker.remove("claim")
    assert again.existing() == [("1g.10gb", 5, 1)]


def test_a_damaged_journal_is_set_aside_and_what_it_named_stays(start: Start, tmp_path: Path) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    path = tmp_path / "state" / FILE
    path.write_bytes(path.read_bytes().replace(b"claim", b"clbim"))
    again = start()
    assert again.maker.made() == ()
    assert again.maker.sweep(frozenset()) == ()
    assert again.existing() == [("1g.10gb", 5, 1)]
    assert [each.name for each in path.parent.glob("*.damaged-*")] == [f"{FILE}.damaged-1"]
    again.maker.make(again.gpu(), again.shape("1g.10gb", 5), "claim")
    assert read_record(path, SCHEMA) is not None


def test_a_journal_of_another_version_is_left_until_there_is_something_to_write(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE
    path.parent.mkdir()
    write_record(path, "partitions/v99", {"boot": BOOT, "made": []})
    made = start()
    assert "v99" in path.read_text()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    assert read_record(path, SCHEMA) is not None


def test_an_entry_that_is_not_valid_costs_only_itself(start: Start, tmp_path: Path) -> None:
    made = start()
    made.maker.make(made.gpu(), made.shape("1g.10gb", 5), "claim")
    path = tmp_path / "state" / FILE
    data = read_record(path, SCHEMA)
    assert isinstance(data, dict)
    entries = data["made"]
    assert isinstance(entries, list)
    write_record(path, SCHEMA, {**data, "made": [{"owner": 7}, "nonsense", *entries]})
    assert [partition.owner for partition in start().maker.made()] == ["claim"]


# Layouts.


def test_a_layout_is_applied_and_changed(start: Start) -> None:
    made = start()
    gpu = made.gpu()
    made.maker.apply_layout(gpu, MigLayout(("3g.40gb", "1g.10gb")))
    assert made.existing() == [("1g.10gb", 4, 1), ("3g.40gb", 0, 4)]
    assert {entry.partition.owner for entry in made.journal.entries()} == {f"{LAYOUT}{gpu.uuid}"}
    assert made.maker.made() == ()
    assert made.maker.sweep(frozenset()) == ()
    assert {shape.profile for shape in made.maker.layout_of(gpu)} == {"3g.40gb", "1g.10gb"}
    made.maker.apply_layout(gpu, MigLayout(("1g.10gb", "1g.10gb")))
    assert made.existing() == [("1g.10gb", 0, 1), ("1g.10gb", 4, 1)]
    made.maker.apply_layout(gpu, MigLayout(()))
    assert made.existing() == []
    assert made.facts().gpus[0].mig_mode == 1
    made.maker.apply_layout(gpu, MigLayout((), enabled=False))
    assert made.facts().gpus[0].mig_mode == 0


def test_what_others_have_made_counts_and_stays(start: Start) -> None:
    made = start()
    foreign(made, "1g.10gb", 0)
    foreign(made, "1g.10gb", 1)
    made.maker.apply_layout(made.gpu(), MigLayout(("1g.10gb", "3g.40gb")))
    assert made.existing() == [("1g.10gb", 0, 1), ("1g.10gb", 1, 1), ("3g.40gb", 4, 4)]
    assert [shape.profile for shape in made.maker.layout_of(made.gpu())] == ["3g.40gb"]
    made.maker.apply_layout(made.gpu(), MigLayout(()))
    assert made.existing() == [("1g.10gb", 0, 1), ("1g.10gb", 1, 1)]


def test_a_layout_that_does_not_fit_changes_nothing(start: Start) -> None:
    made = start()
    made.maker.apply_layout(made.gpu(), MigLayout(("3g.40gb",)))
    with pytest.raises(
        PartitionError, match=r"its layout cannot be made: 2 x 4g\.40gb do not fit on it together"
    ) as no:
        made.maker.apply_layout(made.gpu(), MigLayout(("4g.40gb", "4g.40gb")))
    assert not no.value.pending
    assert made.existing() == [("3g.40gb", 0, 4)]


def test_a_read_of_the_gpu_that_changed_says_what_a_read_of_all_would(start: Start) -> None:
    made = start(node(3))
    made.facts()
    for index, (profile, at) in enumerate([("1g.10gb", 2), ("3g.40gb", 4), ("7g.80gb", 0)]):
        gpu = made.gpu(index)
        for change in (
            lambda gpu=gpu, profile=profile, at=at, index=index: made.maker.make(
                gpu, made.shape(profile, at, index), f"claim-{index}"
            ),
            lambda index=index: made.maker.remove(f"claim-{index}"),
            lambda gpu=gpu: made.maker.leave_partitioning(gpu),
        ):
            change()
            part = made.source.read_gpus(frozenset({gpu.uuid or ""}))
            assert part == made.source.read()


def test_a_read_of_one_gpu_asks_no_other(start: Start, hardware: InjectedNvml) -> None:
    one, other = node(2).gpus
    beside = tuple(replace(gpu, ancestors=(Ancestor(1 - gpu.index, 20),)) for gpu in (one, other))
    made = start(replace(node(2), gpus=beside))
    well, (first, second) = made.source.read(), (frozenset({gpu.uuid or ""}) for gpu in (one, other))
    hardware.lose(1)
    assert made.source.read_gpus(first) == well
    lost = made.source.read_gpus(second)
    assert lost == made.source.read() != well
    hardware.find(1)
    assert made.source.read_gpus(first) == lost
    assert made.source.read_gpus(second) == made.source.read() == well


@pytest.mark.parametrize("uuids", [{"GPU-unknown"}, {""}, {"GPU-unknown", node().gpus[0].uuid or ""}])
def test_gpus_that_were_not_read_before_are_found_by_a_read_of_everything(
    start: Start, hardware: InjectedNvml, uuids: set[str]
) -> None:
    made = start(node(1))
    hardware.serve(node(2))
    assert made.source.read_gpus(frozenset(uuids)) == made.source.read()


def test_a_new_session_reads_everything(start: Start, hardware: InjectedNvml) -> None:
    made = start(node(2))
    before = made.source.read()
    made.source.close()
    assert made.source.read_gpus(frozenset({node(2).gpus[0].uuid or ""})) == before
