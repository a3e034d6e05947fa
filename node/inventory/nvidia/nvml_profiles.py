"""Reads MIG profiles: the instances that can be made of a GPU according to NVML, with MIG mode on or off.

Neither profiles nor placements change while the driver is loaded, so they are read once per session. They cost some
thirty calls for each GPU, and this module has to be loaded; so both happen only if a rule or a recording needs them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from node.inventory.facts import GpuFacts, MigProfile, MigTable
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_calls import PERMANENT, Identity, NvmlCalls, identity_of
from node.values import replace

_INFO = "nvmlDeviceGetGpuInstanceProfileInfo"
_PLACEMENTS = "nvmlDeviceGetGpuInstancePossiblePlacements"
_UNKNOWN_LAYOUT = ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH")
NO_SUCH_PROFILE = ("NOT_SUPPORTED", "INVALID_ARGUMENT")
"""NVML's errors for the constant of a profile that the GPU does not have."""
_MOST = 64
"""Constants that are tried: more than any driver knows."""


def read_profiles(calls: NvmlCalls, gpu: Handle) -> tuple[MigProfile, ...] | None:
    """The GPU's profiles in order of NVML's constants; None if a call failed that may work at the next scan.

    ``calls`` notes such failures. A driver that cannot list profiles has none.
    """
    profiles: list[MigProfile] = []
    for index in range(_MOST):
        try:
            profiles += _placed(calls.binding, gpu, _profile(calls.binding, gpu, index))
        except CallFailed as failed:
            if failed.error == "INVALID_ARGUMENT" and index >= calls.binding.mig_profiles:
                break
            if failed.error not in NO_SUCH_PROFILE:
                calls.note(failed.call, failed, PERMANENT)
                return () if failed.error in PERMANENT else None
    return tuple(profiles)


def mig_tables(gpus: Iterable[GpuFacts], known: Mapping[Identity, tuple[MigProfile, ...]]) -> tuple[MigTable, ...]:
    """One table for all GPUs that have the same profiles."""
    tables: dict[tuple[MigProfile, ...], list[int]] = {}
    for gpu in gpus:
        identity = identity_of(gpu)
        profiles = known.get(identity, ()) if identity is not None else ()
        if profiles:
            tables.setdefault(profiles, []).append(gpu.index)
    return tuple(MigTable(tuple(indices), profiles) for profiles, indices in tables.items())


def _profile(binding: Binding, gpu: Handle, index: int) -> MigProfile:
    """The profile without its placements, in the newest layout that the driver knows. Raises CallFailed."""

    def ask(nvml: Any, version: int) -> MigProfile:
        info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu.value, index, version)
        return MigProfile(
            index=index,
            profile_id=int(info.id),
            slices=int(info.sliceCount),
            instances=int(info.instanceCount),
            multiprocessors=int(info.multiprocessorCount),
            copy_engines=int(info.copyEngineCount),
            decoders=int(info.decoderCount),
            encoders=int(info.encoderCount),
            jpeg_engines=int(info.jpegCount),
            ofa_engines=int(info.ofaCount),
            memory_mib=int(info.memorySizeMB),
            size=0,
            starts=(),
            name=str(info.name) or None if version > 1 else None,
        )

    try:
        return binding.ask(_INFO, lambda nvml: ask(nvml, 2))
    except CallFailed as failed:
        if failed.error not in _UNKNOWN_LAYOUT:
            raise
        return binding.ask(_INFO, lambda nvml: ask(nvml, 1))


def _placed(binding: Binding, gpu: Handle, profile: MigProfile) -> tuple[MigProfile, ...]:
    """The profile with its placements, one for each size. Raises CallFailed."""

    def ask(nvml: Any) -> list[tuple[int, int]]:
        count = ctypes.c_uint(0)
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu.value, profile.profile_id, None, ctypes.byref(count))
        room = (nvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu.value, profile.profile_id, room, ctypes.byref(count))
        return [(int(each.size), int(each.start)) for each in room[: count.value]]

    found = sorted(set(binding.ask(_PLACEMENTS, ask)))
    sizes = dict.fromkeys(size for size, _ in found if size > 0)
    return tuple(
        replace(profile, size=size, starts=tuple(start for of, start in found if of == size)) for size in sizes
    )
