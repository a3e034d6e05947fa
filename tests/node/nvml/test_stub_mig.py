"""The stub divides GPUs as the driver does: what it makes, refuses and keeps."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.inventory.model import PartitionShape
from node.inventory.nvidia.layouts import LayoutError, plan_layout
from node.inventory.nvidia.nvml_binding import CallFailed, Handle
from node.inventory.nvidia.nvml_mig import MigCalls
from node.values import replace
from tests.making import mig_tables
from tests.making.mig_nodes import PartitionedNode, a100, node, shape_of
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc

A30 = node(table=mig_tables.A30, architecture=7, gigabytes=24)


class _Gpu:
    """The first GPU, in MIG mode, through the binding."""

    def __init__(self, hardware: InjectedNvml, folder: Path) -> None:
        self.made = PartitionedNode(hardware.library, folder)
        self.device = self.made.gpu()
        binding = self.made.source.sessions.current
        assert binding is not None
        self.binding = binding
        self.calls = MigCalls(binding)
        self.handle: Handle = self.calls.gpu(self.device.uuid or "", "0")

    def create(self, profile: str, start: int) -> Any:
        shape = shape_of(self.device, profile, start)
        return self.calls.create_instance(self.handle, shape.profile_id, shape.start, shape.size)

    def room(self, profile: str) -> int:
        shape = next(shape for shape in self.device.partitions if shape.profile == profile)
        return self.binding.number("nvmlDeviceGetGpuInstanceRemainingCapacity", self.handle, shape.profile_id)


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InjectedNvml:
    made = InjectedNvml(tmp_path / "driver", a100(mode=1))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def gpu(hardware: InjectedNvml, tmp_path: Path) -> Iterator[_Gpu]:
    made = _Gpu(hardware, tmp_path / "state")
    yield made
    made.made.close()


def refused(call: Any, *arguments: object) -> str:
    with pytest.raises(CallFailed) as failed:
        call(*arguments)
    return failed.value.error


def test_remaining_capacity_is_what_still_can_be_made(gpu: _Gpu) -> None:
    assert [gpu.room(name) for name in ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "7g.40gb")] == [
        *(7, 1, 4, 3, 2, 1)
    ]
    gpu.create("3g.20gb", 0)
    gpu.create("1g.5gb+me", 4)
    assert [gpu.room(name) for name in ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "7g.40gb")] == [
        *(2, 0, 1, 0, 0, 0)
    ]


def test_places_that_do_not_exist_or_are_taken_are_refused_as_the_driver_does(gpu: _Gpu) -> None:
    gpu.create("3g.20gb", 4)
    assert refused(gpu.create, "1g.5gb", 5) == "INSUFFICIENT_RESOURCES"
    assert refused(gpu.create, "3g.20gb", 4) == "INSUFFICIENT_RESOURCES"
    assert refused(gpu.calls.create_instance, gpu.handle, 9, 1, 4) == "INVALID_ARGUMENT"
    assert refused(gpu.calls.create_instance, gpu.handle, 77, 0, 1) == "INVALID_ARGUMENT"


def test_without_mig_mode_nothing_is_supported(hardware: InjectedNvml, tmp_path: Path) -> None:
    hardware.serve(a100())
    one = _Gpu(hardware, tmp_path / "state")
    assert refused(one.create, "1g.5gb", 0) == "NOT_SUPPORTED"
    assert refused(one.room, "1g.5gb") == "NOT_SUPPORTED"
    assert one.calls.instance(one.handle, 7) is None
    one.made.close()


def test_an_instance_goes_after_its_parts_and_what_is_gone_is_not_found(gpu: _Gpu) -> None:
    instance = gpu.create("2g.10gb", 2)
    compute = gpu.calls.create_compute_instance(instance, gpu.calls.full_profile(instance)[0])
    assert refused(gpu.calls.create_compute_instance, instance, 0) == "INSUFFICIENT_RESOURCES"
    assert refused(gpu.calls.destroy_instance, instance) == "IN_USE"
    gpu.calls.destroy_compute_instance(compute)
    assert refused(gpu.calls.destroy_compute_instance, compute) == "NOT_FOUND"
    gpu.calls.destroy_instance(instance)
    assert refused(gpu.calls.destroy_instance, instance) == "NOT_FOUND"


def test_processes_keep_instances_and_the_mode(gpu: _Gpu, hardware: InjectedNvml) -> None:
    instance = gpu.create("2g.10gb", 2)
    compute = gpu.calls.create_compute_instance(instance, gpu.calls.full_profile(instance)[0])
    hardware.processes(0, (4711, 1, instance.number, compute.number))
    assert refused(gpu.calls.destroy_compute_instance, compute) == "IN_USE"
    assert gpu.calls.set_mode(gpu.handle, on=False) == "IN_USE"
    assert gpu.calls.mode(gpu.handle) == (True, False)


def test_a_reset_takes_every_instance_with_it(gpu: _Gpu) -> None:
    gpu.create("2g.10gb", 2)
    assert gpu.calls.set_mode(gpu.handle, on=False) == ""
    assert gpu.calls.set_mode(gpu.handle, on=True) == ""
    assert gpu.calls.all_instances(gpu.handle) == ()


def test_the_hardware_outlives_the_process_and_is_one_for_all(
    gpu: _Gpu, hardware: InjectedNvml, tmp_path: Path
) -> None:
    script = (
        "import sys, os, signal; from pathlib import Path\n"
        "from tests.node.nvml.killed_maker import foreign; from tests.making.mig_nodes import PartitionedNode\n"
        "foreign(PartitionedNode(Path(sys.argv[1]), Path(sys.argv[2])), '3g.20gb', 4)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(hardware.library), str(tmp_path / "other")],
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert ended.returncode == -9
    assert gpu.made.existing() == [("3g.20gb", 4, 4)]


def test_it_allows_all_that_a_layout_allows_and_nothing_else(hardware: InjectedNvml, tmp_path: Path) -> None:
    """Every set of partitions of an A30, and random ones of an A100."""
    hardware.serve(replace(A30, gpus=tuple(replace(gpu, mig_mode=1, mig_pending=1) for gpu in A30.gpus)))
    one = _Gpu(hardware, tmp_path / "state")
    # Each half is empty or has 1g or 2g in five ways, or in five more the one instance with media engines; or all 4g.
    assert _walk(one, [], 0) == 5 * 5 + 2 * 5 * 5 + 1
    one.made.close()
    hardware.boot()
    hardware.serve(a100(mode=1))
    chance, other = random.Random(1), _Gpu(hardware, tmp_path / "state")
    for _ in range(40):
        chosen: list[PartitionShape] = []
        made = []
        for shape in chance.sample(other.device.partitions, len(other.device.partitions)):
            if _fits(other, chosen, shape):
                made.append(other.create(shape.profile, shape.start))
                chosen.append(shape)
            else:
                assert refused(other.create, shape.profile, shape.start) == "INSUFFICIENT_RESOURCES"
        for instance in made:
            other.calls.destroy_instance(instance)
    other.made.close()


def _walk(gpu: _Gpu, chosen: list[PartitionShape], first: int) -> int:
    """How many sets there are with those chosen, each made and checked."""
    sets = 1
    for number in range(first, len(gpu.device.partitions)):
        shape = gpu.device.partitions[number]
        if not _fits(gpu, chosen, shape):
            assert refused(gpu.create, shape.profile, shape.start) == "INSUFFICIENT_RESOURCES"
            continue
        instance = gpu.create(shape.profile, shape.start)
        sets += _walk(gpu, [*chosen, shape], number + 1)
        gpu.calls.destroy_instance(instance)
    return sets


def _fits(gpu: _Gpu, chosen: list[PartitionShape], shape: PartitionShape) -> bool:
    alone = replace(
        gpu.device, partitions=(*(each for each in gpu.device.partitions if each.profile != shape.profile), shape)
    )
    try:
        plan_layout(alone, [shape.profile], fixed=chosen)
    except LayoutError:
        return False
    return True
