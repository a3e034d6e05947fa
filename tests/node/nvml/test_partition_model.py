"""Whatever owners, others and the driver do, the maker's books and the hardware agree, and what others made stays."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from node.inventory.nvidia.nvml_binding import CallFailed, Handle
from node.inventory.nvidia.nvml_mig import GpuInstance, MigCalls
from node.partitions import PartitionError
from tests.making.mig_nodes import PartitionedNode, node
from tests.node.nvml import stub
from tests.node.nvml.stub.injected import InjectedNvml

pytestmark = stub.needs_gcc

FAULTS = (
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceGetInfo",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
    "nvmlDeviceGetGpuInstances",
)
STEPS = 120


class _World:
    """One GPU, owners who want partitions of it, and somebody else who makes and removes instances by hand."""

    def __init__(self, hardware: InjectedNvml, folder: Path, chance: random.Random) -> None:
        self.hardware = hardware
        self.folder = folder
        self.chance = chance
        self.made = PartitionedNode(hardware.library, folder)
        self.gpu = self.made.gpu()
        self.wanted: dict[str, tuple[int, int]] = {}
        """By owner the place of what it was given."""
        self.foreign: set[int] = set()
        """Numbers of the instances that others have made."""

    def calls(self) -> tuple[MigCalls, Handle]:
        binding = self.made.source.sessions.current
        assert binding is not None
        calls = MigCalls(binding)
        return calls, calls.gpu(self.gpu.uuid or "", self.gpu.index)

    def instances(self) -> dict[int, GpuInstance]:
        calls, handle = self.calls()
        return {each.number: each for each in calls.all_instances(handle)}

    def make(self) -> None:
        owner, shape = f"claim-{self.chance.randrange(4)}", self.chance.choice(self.gpu.partitions)
        place = shape.profile_id, shape.start
        if self.wanted.get(owner, place) != place:
            return
        try:
            self.made.maker.make(self.gpu, shape, owner)
        except PartitionError:
            return
        self.wanted[owner] = place

    def remove(self) -> None:
        owner = f"claim-{self.chance.randrange(4)}"
        try:
            self.made.maker.remove(owner)
        except PartitionError:
            return
        self.wanted.pop(owner, None)

    def sweep(self) -> None:
        self.made.maker.sweep(frozenset(self.wanted))

    def restart(self) -> None:
        self.made.close()
        self.made = PartitionedNode(self.hardware.library, self.folder)

    def make_foreign(self) -> None:
        calls, handle = self.calls()
        shape = self.chance.choice(self.gpu.partitions)
        if not calls.mode(handle)[0]:
            return
        try:
            instance = calls.create_instance(handle, shape.profile_id, shape.start, shape.size)
            self.foreign.add(instance.number)
            if self.chance.random() < 0.7:
                calls.create_compute_instance(instance, calls.full_profile(instance)[0])
        except CallFailed:
            return

    def remove_foreign(self) -> None:
        """By hand: also what an owner uses, if others have made it."""
        if not self.foreign:
            return
        calls, _ = self.calls()
        number = self.chance.choice(sorted(self.foreign))
        instance = self.instances()[number]
        for compute in calls.compute_instances(instance):
            calls.destroy_compute_instance(compute)
        calls.destroy_instance(instance)
        self.foreign.discard(number)

    def leave(self) -> None:
        try:
            self.made.maker.leave_partitioning(self.gpu)
        except PartitionError:
            return
        assert not self.foreign
        assert not self.instances()

    def fail(self) -> None:
        """One of the next calls fails, for one step."""
        call = self.chance.choice(FAULTS)
        self.hardware.fail(call, "UNKNOWN")
        try:
            self.chance.choice((self.make, self.remove, self.sweep))()
        finally:
            self.hardware.set({f"error.{call}": None})

    def check(self) -> None:
        """What others have made is there; what owners were given is there, unless others took it by hand."""
        existing = self.instances()
        assert set(existing) >= self.foreign
        known = {
            (entry.partition.shape.profile_id, entry.partition.shape.start) for entry in self.made.journal.entries()
        }
        ours = {(each.profile_id, each.start) for number, each in existing.items() if number not in self.foreign}
        assert ours <= known, "an instance of ours that no record names"
        places = {(each.profile_id, each.start) for each in existing.values()}
        for owner, place in self.wanted.items():
            assert place in known, f"{owner} is forgotten"
            entry = next(each for each in self.made.journal.of(owner))
            assert place in places or entry.makes != "all", f"what {owner} was given is gone"


@pytest.mark.parametrize("seed", range(6))
def test_books_and_hardware_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    hardware = InjectedNvml(tmp_path / "driver", node())
    for name, value in hardware.environment.items():
        monkeypatch.setenv(name, value)
    world = _World(hardware, tmp_path / "state", random.Random(seed))
    steps = [world.make] * 5 + [world.remove] * 3 + [world.make_foreign, world.remove_foreign, world.fail] * 2
    steps += [world.sweep, world.restart, world.leave]
    try:
        for _ in range(STEPS):
            step = world.chance.choice(steps)
            step()
            world.check()
        world.wanted.clear()
        world.sweep()
        assert set(world.instances()) == world.foreign
        assert world.made.maker.made() == ()
    finally:
        world.made.close()
