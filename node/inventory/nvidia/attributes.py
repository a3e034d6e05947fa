"""Attributes and capacities of NVIDIA devices under the names of NVIDIA's DRA driver, and names of MIG devices.

Pure. Names that NVIDIA's driver has are kept to the letter, because selectors in people's claims use them; others are
lower camel case in the same manner. Texts of brand and architecture are go-nvlib's.

The name of a MIG device holds its placement and not NVML's instance ids: an instance made again in the same place after
a reboot gets its old name. Only a compute instance that is a part of its GPU instance has its own id in the name, which
distinguishes it from its siblings.
"""

from __future__ import annotations

import re

from node.inventory.assembly import Pairs
from node.inventory.facts import MigFacts, NvmlFacts
from node.inventory.model import Version
from node.inventory.nvidia.health import clique, fatal_error
from node.inventory.nvidia.location import LocatedGpu
from node.inventory.pci import address_label, display_mode, standard_attributes

_BRANDS = {
    0: "Unknown",
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}


def driver_attributes(nvml: NvmlFacts) -> Pairs:
    """Attributes of every device of the driver."""
    cuda = nvml.cuda_driver_version
    return [
        ("driverVersion", Version.parse(nvml.driver_version or "")),
        # NVML's number: 1000 times the major version and 10 times the minor one.
        ("cudaDriverVersion", Version(f"{cuda // 1000}.{cuda % 1000 // 10}.0") if cuda else None),
    ]


def common_attributes(gpu: LocatedGpu) -> Pairs:
    """Attributes that a GPU shares with its MIG devices."""
    facts = gpu.facts
    return [
        ("productName", facts.name),
        ("brand", _BRANDS.get(facts.brand, "Unknown") if facts.brand is not None else None),
        ("architecture", _ARCHITECTURES.get(facts.architecture) if facts.architecture is not None else None),
        ("cudaComputeCapability", Version.parse(facts.compute_capability or "")),
        ("addressingMode", facts.addressing_mode),
        *standard_attributes(gpu.address, gpu.function),
    ]


def gpu_attributes(gpu: LocatedGpu) -> Pairs:
    """Attributes that only whole GPUs have."""
    facts = gpu.facts
    # A GPU that does not answer may have MIG or not: then the attribute is absent.
    mig_known = facts.mig_mode is not None or (facts.index >= 0 and fatal_error(facts) is None)
    links = sum(1 for link in facts.nvlinks if link.active)
    return [
        ("type", "gpu"),
        ("uuid", gpu.uuid),
        ("minor", facts.minor),
        ("serial", facts.serial),
        ("gpuModuleID", facts.module_id),
        ("vbiosVersion", facts.vbios_version),
        ("boardPartNumber", facts.board_part_number),
        ("eccEnabled", bool(facts.ecc_mode) if facts.ecc_mode is not None else None),
        ("migCapable", facts.mig_mode is not None if mig_known else None),
        ("migEnabled", facts.mig_mode == 1 if mig_known else None),
        ("mode", display_mode(gpu.function) if gpu.function is not None else None),
        (
            "virtualizationMode",
            _VIRTUALIZATION.get(facts.virtualization_mode) if facts.virtualization_mode is not None else None,
        ),
        ("nvlinks", links or None),
        ("clique", clique(facts.fabric)),
    ]


def mig_attributes(mig: MigFacts, gpu: LocatedGpu, profile: str | None) -> Pairs:
    """Attributes that only MIG devices have."""
    return [
        ("type", "mig"),
        ("uuid", mig.uuid),
        ("parentUUID", gpu.uuid),
        ("profile", profile),
        ("gpuInstanceID", mig.gpu_instance),
        ("computeInstanceID", mig.compute_instance),
        ("gpuInstanceProfileID", mig.gpu_instance_profile),
        ("placementStart", mig.placement_start),
        ("placementSize", mig.placement_size),
        ("gpuSlices", mig.gpu_slices),
        ("computeSlices", mig.compute_slices),
    ]


def mig_capacity(mig: MigFacts) -> list[tuple[str, int | None]]:
    """Memory in bytes and counts of units."""
    return [
        ("memory", mig.memory_mib * MIB if mig.memory_mib is not None else None),
        ("multiprocessors", mig.multiprocessors),
        ("copyEngines", mig.copy_engines),
        ("decoders", mig.decoders),
        ("encoders", mig.encoders),
        ("jpegEngines", mig.jpeg_engines),
        ("ofaEngines", mig.ofa_engines),
    ]


_NAMED_PROFILE = r"MIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)"
_PART = r"\d+c\."
_GIB = 1 << 30
MIB = 1 << 20


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
    return f"{part}{mig.gpu_slices}g.{nominal_gigabytes(mig.memory_mib * MIB, gpu_memory)}gb"


def fills_instance(mig: MigFacts, profile: str | None) -> bool:
    """Whether the compute instance fills its GPU instance."""
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


def _is_part(mig: MigFacts) -> bool:
    return mig.compute_slices is not None and mig.gpu_slices is not None and mig.compute_slices != mig.gpu_slices


def nominal_gigabytes(part: int, whole: int) -> int:
    """The memory in a profile's name: eighths of the GPU, rounded up, of its size in whole GiB; halves round up.

    NVIDIA's own rule (go-nvlib), in integers.
    """
    eighths = -(-8 * part // whole)
    gibibytes = -(-whole // _GIB)
    return (2 * eighths * gibibytes + 8) // 16
