"""The calls about the MIG devices of one GPU; all of them at every scan, since instances come and go."""

from __future__ import annotations

from node.inventory.facts import MigFacts
from node.inventory.nvidia.nvml_binding import Handle
from node.inventory.nvidia.nvml_calls import Asked

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


def read_mig_devices(asked: Asked, gpu: Handle, maximum: int) -> tuple[MigFacts, ...]:
    """The MIG devices of a GPU, in order of their indices; each one's failed calls are its own."""
    devices = []
    for index in range(maximum):
        device = asked(asked.binding.handle, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, index, expected=_HOLE)
        if device is None:
            continue
        own = Asked(asked.binding)
        devices.append(_read_mig_device(own, gpu, index, device))
        if own.gone is not None:
            # A GPU is lost with all that it carries.
            asked.gone = own.gone
            break
    return tuple(devices)


def _read_mig_device(asked: Asked, gpu: Handle, index: int, device: Handle) -> MigFacts:
    binding = asked.binding
    gpu_instance = asked(binding.number, "nvmlDeviceGetGpuInstanceId", device)
    uuid = asked(binding.text, "nvmlDeviceGetUUID", device)
    name = asked(binding.text, "nvmlDeviceGetName", device)
    compute_instance = asked(binding.number, "nvmlDeviceGetComputeInstanceId", device)
    profile, start, size = _placement(asked, gpu, gpu_instance)
    counts = asked(binding.fields, "nvmlDeviceGetAttributes", _ATTRIBUTES, device)
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
        errors=asked.errors,
    )


def _placement(asked: Asked, gpu: Handle, gpu_instance: int | None) -> tuple[int | None, int | None, int | None]:
    """Profile, start and size of the GPU instance; drivers grant this to root alone."""
    if gpu_instance is None:
        return None, None, None
    instance = asked(asked.binding.handle, "nvmlDeviceGetGpuInstanceById", gpu, gpu_instance)
    if instance is None:
        return None, None, None
    info = asked(asked.binding.fields, "nvmlGpuInstanceGetInfo", _PLACEMENT, instance)
    return (None, None, None) if info is None else (info[0], info[1], info[2])
