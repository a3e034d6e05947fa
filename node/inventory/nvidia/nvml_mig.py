"""NVML's calls about MIG mode and instances, as typed values. Every method raises CallFailed.

Loaded only where partitions are made. ``node.inventory.nvidia.partition_maker`` decides what the driver's answers mean
for a partition.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any

from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_processes import computing_pids
from node.inventory.nvidia.nvml_profiles import NO_SUCH_PROFILE
from node.values import Value, value

GONE = frozenset({"NOT_FOUND", "NOT_SUPPORTED"})
"""The driver's errors for an instance that does not exist: NOT_SUPPORTED if MIG mode is off."""
_ROOM = 64
"""Instances for which a call has room; the driver makes 16 at most."""


@value
class GpuInstance(Value):
    """A GPU instance: what it was made of, and the memory slices that it takes."""

    handle: Handle
    number: int
    profile_id: int
    start: int
    size: int

    @property
    def place(self) -> tuple[int, int]:
        """As ``PartitionShape.place``."""
        return self.profile_id, self.start

    def overlaps(self, start: int, size: int) -> bool:
        """Whether it takes one of these memory slices."""
        return self.start < start + size and start < self.start + self.size


@value
class ComputeInstance(Value):
    """A compute instance, which is a MIG device with the handle ``device``; ``slices`` of its GPU instance's."""

    handle: Handle
    number: int
    slices: int
    device: Handle


class MigCalls:
    """MIG through one binding; for use inside ``Binding.shared``."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def gpu(self, uuid: str, index: str | None) -> Handle:
        """The GPU of this UUID, which had the number ``index``."""
        if index is not None and index.isdigit():
            try:
                handle = self._binding.handle("nvmlDeviceGetHandleByIndex", int(index))
                if self.uuid(handle) == uuid:
                    return handle
            except CallFailed:
                pass  # Numbers change with sessions; the next call says what is wrong with the GPU itself.
        # Slow on busy nodes, hence not the first way.
        return self._binding.handle("nvmlDeviceGetHandleByUUID", uuid)

    def uuid(self, device: Handle) -> str:
        """The UUID of a GPU or MIG device."""
        return self._binding.text("nvmlDeviceGetUUID", device)

    def mode(self, gpu: Handle) -> tuple[bool, bool]:
        """Whether MIG mode is on, and whether it will be after the next reset."""
        current, pending = self._binding.numbers("nvmlDeviceGetMigMode", gpu)
        return current == 1, pending == 1

    def set_mode(self, gpu: Handle, *, on: bool) -> str:
        """Ask for a mode; returns why it is not in force yet (an error's name), empty if it is."""
        status = self._binding.number("nvmlDeviceSetMigMode", gpu, int(on))
        return "" if status == 0 else self._binding.error_name(status)

    def processes(self, device: Handle) -> tuple[int, ...]:
        """The processes that compute on a GPU or a MIG device; none if the driver has no call for it."""
        try:
            return computing_pids(self._binding, device)
        except CallFailed as failed:
            if failed.error != "FUNCTION_NOT_FOUND":
                raise
            return ()

    def instances(self, gpu: Handle, profile_id: int) -> tuple[GpuInstance, ...]:
        """The GPU instances of a profile."""

        def ask(nvml: Any) -> list[Handle]:
            found, count = (nvml.c_nvmlGpuInstance_t * _ROOM)(), ctypes.c_uint(_ROOM)
            nvml.nvmlDeviceGetGpuInstances(gpu.value, profile_id, found, ctypes.byref(count))
            return [Handle(each) for each in found[: count.value]]

        handles = self._binding.ask("nvmlDeviceGetGpuInstances", ask)
        return tuple(self._described(handle) for handle in handles)

    def all_instances(self, gpu: Handle) -> tuple[GpuInstance, ...]:
        """Every GPU instance, even of unknown profiles."""
        found: list[GpuInstance] = []
        for index in range(self._binding.mig_profiles):
            try:
                found += self.instances(gpu, self._profile_id(gpu, index))
            except CallFailed as failed:
                if failed.error not in NO_SUCH_PROFILE:
                    raise
        return tuple(sorted(found, key=attrgetter("start", "number")))

    def _profile_id(self, gpu: Handle, index: int) -> int:
        def ask(nvml: Any) -> int:
            return int(nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu.value, index, version=1).id)

        return self._binding.ask("nvmlDeviceGetGpuInstanceProfileInfo", ask)

    def instance(self, gpu: Handle, number: int) -> GpuInstance | None:
        """The GPU instance of this number, None if there is none."""
        try:
            return self._described(self._binding.handle("nvmlDeviceGetGpuInstanceById", gpu, number))
        except CallFailed as failed:
            if failed.error in GONE:
                return None
            raise

    def create_instance(self, gpu: Handle, profile_id: int, start: int, size: int) -> GpuInstance:
        """A new GPU instance at this placement."""

        def ask(nvml: Any) -> Handle:
            placement = nvml.c_nvmlGpuInstancePlacement_t(start, size)
            return Handle(nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu.value, profile_id, ctypes.byref(placement)))

        return self._described(self._binding.ask("nvmlDeviceCreateGpuInstanceWithPlacement", ask))

    def destroy_instance(self, instance: GpuInstance) -> None:
        """Destroy a GPU instance, which must have no compute instances."""
        self._binding.do("nvmlGpuInstanceDestroy", instance.handle)

    def compute_instances(self, instance: GpuInstance) -> tuple[ComputeInstance, ...]:
        """The compute instances of a GPU instance."""
        handles: list[Handle] = []
        for profile_id, _ in self._compute_profiles(instance):
            handles += self._compute_handles(instance, profile_id)
        found = {each.number: each for each in map(self._described_compute, handles)}
        return tuple(found[number] for number in sorted(found))

    def full_profile(self, instance: GpuInstance) -> tuple[int, int]:
        """Id and slices of the compute instance profile that has all of the GPU instance."""
        profiles = tuple(self._compute_profiles(instance))
        if not profiles:
            raise CallFailed("nvmlGpuInstanceGetComputeInstanceProfileInfo", "NOT_SUPPORTED")
        # The first of those that are as large: further ones differ in what they share.
        return max(profiles, key=itemgetter(1))

    def create_compute_instance(self, instance: GpuInstance, profile_id: int) -> ComputeInstance:
        """A new compute instance."""
        made = self._binding.handle("nvmlGpuInstanceCreateComputeInstance", instance.handle, profile_id)
        return self._described_compute(made)

    def destroy_compute_instance(self, instance: ComputeInstance) -> None:
        """Destroy a compute instance, on which no process must run."""
        self._binding.do("nvmlComputeInstanceDestroy", instance.handle)

    def _compute_handles(self, instance: GpuInstance, profile_id: int) -> list[Handle]:
        def ask(nvml: Any) -> list[Handle]:
            found, count = (nvml.c_nvmlComputeInstance_t * _ROOM)(), ctypes.c_uint(_ROOM)
            nvml.nvmlGpuInstanceGetComputeInstances(instance.handle.value, profile_id, found, ctypes.byref(count))
            return [Handle(each) for each in found[: count.value]]

        return self._binding.ask("nvmlGpuInstanceGetComputeInstances", ask)

    def _compute_profiles(self, instance: GpuInstance) -> Iterator[tuple[int, int]]:
        """Id and slices of every compute instance profile that fits into the GPU instance."""
        for profile in range(self._binding.compute_profiles):
            try:
                yield self._compute_profile(instance, profile)
            except CallFailed as failed:
                if failed.error not in NO_SUCH_PROFILE:
                    raise

    def _compute_profile(self, instance: GpuInstance, profile: int) -> tuple[int, int]:
        def ask(nvml: Any) -> tuple[int, int]:
            # The first layout has enough, and every driver knows it.
            info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance.handle.value, profile, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1
            )
            return int(info.id), int(info.sliceCount)

        return self._binding.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", ask)

    def _described(self, handle: Handle) -> GpuInstance:
        def ask(nvml: Any) -> GpuInstance:
            info = nvml.nvmlGpuInstanceGetInfo(handle.value)
            placement = info.placement
            return GpuInstance(handle, int(info.id), int(info.profileId), int(placement.start), int(placement.size))

        return self._binding.ask("nvmlGpuInstanceGetInfo", ask)

    def _described_compute(self, handle: Handle) -> ComputeInstance:
        def ask(nvml: Any) -> ComputeInstance:
            info = nvml.nvmlComputeInstanceGetInfo_v2(handle.value)
            return ComputeInstance(handle, int(info.id), int(info.placement.size), Handle(info.device))

        return self._binding.ask("nvmlComputeInstanceGetInfo", ask)
