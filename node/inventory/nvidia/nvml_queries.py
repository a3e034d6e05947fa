"""Groups of NVML calls that every scan makes: links and ancestors of GPUs, and MIG devices.

The state of every link is read at every scan, since links come up late, when the fabric manager has trained them, and
go down when they fail. Kept for the session are the far end of a link that is up, the ancestor of a pair, and the
numbers that are no link of the GPU (while its MIG mode stays the same, since with MIG some drivers have no links). MIG
devices are read in full at every scan, since instances come and go.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import combinations
from typing import Any

from node.inventory.facts import Ancestor, CallError, GpuFacts, MigFacts, NvLink
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_calls import GPU_GONE, SESSION_ENDED, Identity, NvmlCalls, identity_of
from node.values import Record, record, replace

States = tuple[tuple[int, bool | str], ...]
"""Links by their numbers, each with whether it is up or with the name of NVML's error."""
_NO_SUCH_LINK = ("NOT_SUPPORTED", "INVALID_ARGUMENT")
"""NVML's errors for a number beyond the GPU's last link, or for one that the board does not wire."""

_OF_THE_GPU = GPU_GONE | SESSION_ENDED
_STATE = "nvmlDeviceGetNvLinkState"
_ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"


@record
class KnownLinks(Record):
    """The session's memory of far ends (type, bus id), ancestor levels, and numbers without a link by MIG mode.

    ``links``: the states of a GPU's links, and the links that follow from them: nearly all scans find the same.
    """

    ends: dict[tuple[Identity, int], tuple[str | None, str | None]] = field(default_factory=dict)
    levels: dict[tuple[Identity, Identity], int] = field(default_factory=dict)
    absent: dict[Identity, tuple[int | None, set[int]]] = field(default_factory=dict)
    links: dict[Identity, tuple[States, tuple[NvLink, ...]]] = field(default_factory=dict)

    def absent_of(self, gpu: GpuFacts) -> set[int]:
        """Numbers that are no link of this GPU according to NVML; callers add to it."""
        identity = identity_of(gpu)
        if identity is None:
            return set()
        mode, absent = self.absent.get(identity, (gpu.mig_mode, set[int]()))
        if mode != gpu.mig_mode:
            absent = set()
        self.absent[identity] = gpu.mig_mode, absent
        return absent


def read_nvlinks(calls: NvmlCalls, handle: Handle, gpu: GpuFacts, known: KnownLinks) -> tuple[NvLink, ...]:
    """The GPU's links in order; empty without NVLink, which the first link shows."""
    absent, identity = known.absent_of(gpu), identity_of(gpu)
    states = tuple(_states(calls, handle, absent))
    before = None if identity is None else known.links.get(identity)
    if before is not None and before[0] == states:
        return before[1]
    links = []
    for link, state in states:
        if isinstance(state, str):
            calls.note(_STATE, CallFailed(_STATE, state), _NO_SUCH_LINK if link > 0 else ())
            if calls.gone is None and not calls.failed(_STATE):
                absent.add(link)
            continue
        remote_type, remote_bus_id = _far_end(calls, handle, link, gpu, known) if state else (None, None)
        links.append(NvLink(link, state, remote_type, remote_bus_id))
    found = tuple(links)
    if (
        identity is not None
        and len(found) == len(states)
        and all((identity, link) in known.ends for link in _up(found))
    ):
        known.links[identity] = states, found
    return found


def _up(links: Iterable[NvLink]) -> list[int]:
    return [each.link for each in links if each.active]


def _states(calls: NvmlCalls, handle: Handle, absent: set[int]) -> Iterator[tuple[int, bool | str]]:
    """The numbers that may be links, with their states or errors; only the first one if that fails."""
    numbers = [link for link in range(calls.binding.max_nvlinks) if link not in absent]
    for some in (numbers[:1], numbers[1:]):
        states = calls(_states_of, _STATE, calls.binding, handle, some)
        if states and states[-1][1] in _OF_THE_GPU:
            # Noted before the far ends of the other links are asked for: a lost GPU is asked nothing more.
            calls.note(_STATE, CallFailed(_STATE, str(states[-1][1])))
        yield from states or ()
        if not states or (states[0][0] == 0 and isinstance(states[0][1], str)):
            return


def _states_of(call: str, binding: Binding, gpu: Handle, links: Sequence[int]) -> list[tuple[int, bool | str]]:
    """Each link with whether it is up or with the name of NVML's error; it stops after an error that concerns the GPU.

    The library is called directly: an exception for each link that a board lacks would take most of the time.
    """
    found: list[tuple[int, bool | str]] = []

    def ask(module: Any) -> None:
        function = module._nvmlGetFunctionPointer(call)  # noqa: SLF001
        state = ctypes.c_uint()
        for link in links:
            code = function(gpu.value, ctypes.c_uint(link), ctypes.byref(state))
            found.append((link, binding.error_name(code) if code else bool(state.value)))
            if found[-1][1] in _OF_THE_GPU:
                return

    binding.ask(call, ask)
    return found


def _far_end(
    calls: NvmlCalls, handle: Handle, link: int, gpu: GpuFacts, known: KnownLinks
) -> tuple[str | None, str | None]:
    identity = identity_of(gpu)
    if identity is not None and (identity, link) in known.ends:
        return known.ends[identity, link]
    kind = calls(calls.binding.nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    bus_id = calls(calls.binding.bus_id, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
    end = kind or None, bus_id
    if identity is not None and kind is not None and bus_id is not None:
        known.ends[identity, link] = end
    return end


def with_ancestors(
    binding: Binding, gpus: list[GpuFacts], handles: list[Handle | None], known: KnownLinks
) -> list[GpuFacts]:
    """The GPUs with the common ancestor of each with each other one.

    A pair is read once, and only while both answer. A failure is noted at both and never makes either lost, because the
    other one may be the cause.
    """
    ancestors: list[list[Ancestor]] = [[] for _ in gpus]
    identities = [identity_of(gpu) for gpu in gpus]
    errors: list[set[tuple[str, str]]] = [{(error.call, error.error) for error in gpu.errors} for gpu in gpus]
    for first, second in combinations(range(len(gpus)), 2):
        one, two = identities[first], identities[second]
        level = None if one is None or two is None else known.levels.get((one, two))
        if level is None:
            pair = NvmlCalls(binding)
            level = _level(pair, (gpus[first], handles[first]), (gpus[second], handles[second]), known)
            for own in (first, second):
                errors[own].update((error.call, error.error) for error in pair.errors)
        if level is not None:
            ancestors[first].append(Ancestor(gpus[second].index, level))
            ancestors[second].append(Ancestor(gpus[first].index, level))
    return [
        replace(gpu, ancestors=tuple(own), errors=tuple(CallError(*error) for error in sorted(failed)))
        for gpu, own, failed in zip(gpus, ancestors, errors, strict=True)
    ]


def _level(
    calls: NvmlCalls, first: tuple[GpuFacts, Handle | None], second: tuple[GpuFacts, Handle | None], known: KnownLinks
) -> int | None:
    one, two = identity_of(first[0]), identity_of(second[0])
    if any(handle is None or gpu.error is not None for gpu, handle in (first, second)):
        return None
    level = calls(calls.binding.number, _ANCESTOR, first[1], second[1])
    if one is not None and two is not None and level is not None:
        known.levels[one, two] = level
    return level


PARTITION_CALLS = frozenset(
    ("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex")
)
"""The calls about a GPU by which its MIG devices are found."""
_HOLE = ("NOT_FOUND", "INVALID_ARGUMENT")
"""NVML numbers MIG devices up to a maximum and leaves out those that do not exist."""

_ATTRIBUTES = (
    "multiprocessorCount",
    "sharedCopyEngineCount",
    "sharedDecoderCount",
    "sharedEncoderCount",
    "sharedJpegCount",
    "sharedOfaCount",
    "gpuInstanceSliceCount",
    "computeInstanceSliceCount",
    "memorySizeMB",
)
_PLACEMENT = ("profileId", "placement.start", "placement.size")


def read_mig_devices(calls: NvmlCalls, gpu: Handle, maximum: int) -> tuple[MigFacts, ...]:
    """The MIG devices of a GPU, in order of their indices; each one's failed calls are its own."""
    devices = []
    for index in range(maximum):
        device = calls(calls.binding.handle, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, index, expected=_HOLE)
        if device is None:
            continue
        own = NvmlCalls(calls.binding)
        devices.append(_read_mig_device(own, gpu, index, device))
        if own.gone is not None:
            # A GPU is lost with all that it carries.
            calls.learn(own)
            break
    return tuple(devices)


def _read_mig_device(calls: NvmlCalls, gpu: Handle, index: int, device: Handle) -> MigFacts:
    binding = calls.binding
    gpu_instance = calls(binding.number, "nvmlDeviceGetGpuInstanceId", device)
    uuid = calls(binding.text, "nvmlDeviceGetUUID", device)
    name = calls(binding.text, "nvmlDeviceGetName", device)
    compute_instance = calls(binding.number, "nvmlDeviceGetComputeInstanceId", device)
    profile, start, size = _placement(calls, gpu, gpu_instance)
    counts = calls(binding.fields, "nvmlDeviceGetAttributes", _ATTRIBUTES, device)
    attributes: tuple[int | None, ...] = counts if counts is not None else (None,) * len(_ATTRIBUTES)
    return MigFacts(
        index=index,
        uuid=uuid,
        name=name,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        gpu_instance_profile=profile,
        placement_start=start,
        placement_size=size,
        multiprocessors=attributes[0],
        copy_engines=attributes[1],
        decoders=attributes[2],
        encoders=attributes[3],
        jpeg_engines=attributes[4],
        ofa_engines=attributes[5],
        gpu_slices=attributes[6],
        compute_slices=attributes[7],
        memory_mib=attributes[8],
        errors=calls.errors,
    )


def _placement(calls: NvmlCalls, gpu: Handle, gpu_instance: int | None) -> tuple[int | None, int | None, int | None]:
    """Profile, start and size of the GPU instance; drivers grant this to root alone."""
    if gpu_instance is None:
        return None, None, None
    instance = calls(calls.binding.handle, "nvmlDeviceGetGpuInstanceById", gpu, gpu_instance)
    if instance is None:
        return None, None, None
    info = calls(calls.binding.fields, "nvmlGpuInstanceGetInfo", _PLACEMENT, instance)
    return (None, None, None) if info is None else (info[0], info[1], info[2])
