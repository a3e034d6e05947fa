"""Nodes whose GPUs can be divided, as the stub NVML library serves them, and the maker of their partitions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from node.inventory.devices import devices_of
from node.inventory.facts import GpuFacts, MigProfile, MigTable, NodeFacts, NvmlFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind, PartitionShape
from node.inventory.nvidia.nvml import NvmlSource
from node.inventory.nvidia.nvml_mig import MigCalls
from node.inventory.nvidia.partition_journal import PartitionJournal
from node.inventory.nvidia.partition_maker import NvidiaPartitionMaker
from tests.making import mig_tables

AMPERE, HOPPER, BLACKWELL = 7, 9, 10
"""NVML's numbers of architectures."""
GIB = 1 << 30
BOOT = "11111111-2222-3333-4444-555555555555"


def node(
    count: int = 1,
    table: tuple[MigProfile, ...] = mig_tables.H100_80GB,
    architecture: int = HOPPER,
    *,
    mode: int = 0,
    gigabytes: int = 80,
) -> NvmlFacts:
    """So many equal GPUs."""
    gpus = tuple(
        GpuFacts(
            index=index,
            bus_id=f"00000000:{index + 1:X}B:00.0",
            uuid=f"GPU-{index:08x}-1111-2222-3333-444444444444",
            name="NVIDIA H100 80GB HBM3",
            minor=index,
            architecture=architecture,
            memory_bytes=gigabytes * GIB,
            mig_mode=mode,
            mig_pending=mode,
            mig_max_devices=7 * mode,
        )
        for index in range(count)
    )
    return NvmlFacts(driver_version="550.107.02", gpus=gpus, mig_tables=(MigTable(tuple(range(count)), table),))


def a100(count: int = 1, *, mode: int = 0) -> NvmlFacts:
    """GPUs that have to be reset for another mode."""
    facts = node(count, mig_tables.A100_40GB, AMPERE, mode=mode, gigabytes=40)
    return replace(facts, gpus=tuple(replace(gpu, name="NVIDIA A100-SXM4-40GB") for gpu in facts.gpus))


def device_files(folder: Path, gpus: int) -> None:
    """The driver's device files below ``folder``/dev, as a node has them before there is any instance; needs root."""
    files = {"nvidiactl": (195, 255), "nvidia-uvm": (510, 0), "nvidia-caps/nvidia-cap1": (506, 1)}
    files |= {f"nvidia{index}": (195, index) for index in range(gpus)}
    for name, numbers in files.items():
        path = folder / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(*numbers))


def proc_with_driver(folder: Path) -> Path:
    """The proc file system with a place for the driver's own folder."""
    proc = folder / "proc"
    proc.mkdir()
    for entry in Path("/proc").iterdir():
        if entry.name != "driver" and not entry.name.isdigit():
            (proc / entry.name).symlink_to(entry)
    return proc


class PartitionedNode:
    """An open NVML and the maker on it; a new one on the same folder is the agent started again."""

    def __init__(self, library: Path, folder: Path, *, boot: str = BOOT, may_switch: bool = True) -> None:
        self.source = NvmlSource(Path("/"), library, proc=folder / "proc", profiles=True)
        self.facts()
        self.journal = PartitionJournal(folder, boot)
        self.maker = NvidiaPartitionMaker(self.source.sessions, self.journal, lambda _: may_switch)

    def facts(self) -> NvmlFacts:
        """What NVML says now."""
        facts = self.source.read().nvml
        assert facts is not None
        assert facts.status == "ok", facts
        return facts

    def devices(self) -> tuple[Device, ...]:
        """The devices of now."""
        return devices_of(NodeFacts(nvml=self.facts()), Identities())

    def gpu(self, index: int = 0) -> Device:
        """A whole GPU."""
        return next(each for each in self.devices() if each.kind is DeviceKind.GPU and each.index == str(index))

    def shape(self, profile: str, start: int, index: int = 0) -> PartitionShape:
        """A shape of a GPU."""
        return shape_of(self.gpu(index), profile, start)

    def existing(self, index: int = 0) -> list[tuple[str, int, int]]:
        """Profile, start and size of the MIG devices that a GPU has."""
        devices = self.devices()
        gpu = next(each for each in devices if each.kind is DeviceKind.GPU and each.index == str(index))
        return sorted(
            (str(each.attribute("profile")), _number(each, "placementStart"), _number(each, "placementSize"))
            for each in devices
            if each.kind is DeviceKind.MIG and each.parent == gpu.name
        )

    def close(self) -> None:
        """Let go of NVML."""
        self.source.close()


def shape_of(gpu: Device, profile: str, start: int) -> PartitionShape:
    """The shape of this profile and start."""
    return next(shape for shape in gpu.partitions if (shape.profile, shape.start) == (profile, start))


def _number(device: Device, name: str) -> int:
    value = device.attribute(name)
    assert isinstance(value, int)
    return value


Start = Callable[..., PartitionedNode]


def foreign(made: PartitionedNode, profile: str, at: int, *, compute: bool = True, gpu: int = 0) -> MigCalls:
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
