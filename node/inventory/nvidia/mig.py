"""Names and profiles of MIG devices.

Pure. A name holds the placement and not NVML's instance ids: instances made again in the same places after a reboot
get their old names. Only where a compute instance is a part of its GPU instance, its own id must tell it from its
siblings.
"""

from __future__ import annotations

import re

from node.inventory.facts import MigFacts
from node.inventory.pci import address_label

_NAMED_PROFILE = r"MIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)"
_PART = r"\d+c\."
_GIB = 1 << 30
_MIB = 1 << 20


def mig_profile(mig: MigFacts, gpu_memory: int | None) -> str | None:
    """The profile (``1g.5gb``, ``1c.3g.20gb``): from NVML's name of the device, else from its slices and memory.

    ``gpu_memory``: bytes of the whole GPU.
    """
    named = re.search(_NAMED_PROFILE, mig.name or "")
    if named is not None:
        return named.group(1)
    if mig.gpu_slices is None or mig.memory_mib is None or not gpu_memory:
        return None
    part = f"{mig.compute_slices}c." if _is_part(mig) else ""
    return f"{part}{mig.gpu_slices}g.{_nominal_gigabytes(mig.memory_mib * _MIB, gpu_memory)}gb"


def fills_instance(mig: MigFacts, profile: str | None) -> bool:
    """Whether the compute instance has all of its GPU instance."""
    if mig.compute_slices is not None and mig.gpu_slices is not None:
        return not _is_part(mig)
    return not re.match(_PART, profile or "")


def mig_name(mig: MigFacts, profile: str | None, gpu_name: str, address: str | None) -> str:
    """``mig-<pci>-<start>-<size>``, with ``-c<compute instance>`` for a part; DNS label."""
    where = address_label(address) if address is not None else gpu_name
    if mig.placement_start is not None and mig.placement_size is not None:
        place = f"{mig.placement_start}-{mig.placement_size}"
    elif mig.gpu_instance is not None:
        place = f"gi{mig.gpu_instance}"
    else:
        return f"mig-{where}-i{mig.index}"
    if fills_instance(mig, profile):
        return f"mig-{where}-{place}"
    return f"mig-{where}-{place}-c{mig.index if mig.compute_instance is None else mig.compute_instance}"


def mig_memory(mig: MigFacts) -> int | None:
    """Memory in bytes."""
    return mig.memory_mib * _MIB if mig.memory_mib is not None else None


def _is_part(mig: MigFacts) -> bool:
    return mig.compute_slices is not None and mig.gpu_slices is not None and mig.compute_slices != mig.gpu_slices


def _nominal_gigabytes(part: int, whole: int) -> int:
    """The memory in a profile's name: eighths of the GPU, rounded up, of its size in whole GiB; halves round up.

    NVIDIA's own rule (go-nvlib), in integers.
    """
    eighths = -(-8 * part // whole)
    gibibytes = -(-whole // _GIB)
    return (2 * eighths * gibibytes + 8) // 16
