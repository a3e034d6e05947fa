"""Attributes and capacities of NVIDIA devices, under the names that NVIDIA's DRA driver gives them.

Pure. Names that NVIDIA's driver has are kept to the letter, because selectors in people's claims use them; others are
lower camel case in the same manner. Texts of brand and architecture are go-nvlib's.
"""

from __future__ import annotations

from node.inventory.attribute_pool import Pairs
from node.inventory.facts import GpuFacts, MigFacts, NvmlFacts
from node.inventory.model import Version
from node.inventory.nvidia.fabric import clique
from node.inventory.nvidia.health import fatal_error
from node.inventory.nvidia.location import LocatedGpu
from node.inventory.nvidia.mig import mig_memory
from node.inventory.pci import display_mode, standard_attributes

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
    """What every device of the driver has."""
    cuda = nvml.cuda_driver_version
    return [
        ("driverVersion", Version.parse(nvml.driver_version or "")),
        # NVML's number: 1000 times the major version and 10 times the minor one.
        ("cudaDriverVersion", Version(f"{cuda // 1000}.{cuda % 1000 // 10}.0") if cuda else None),
    ]


def common_attributes(gpu: LocatedGpu) -> Pairs:
    """What a GPU shares with its MIG devices."""
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
    """What only a whole GPU has."""
    facts = gpu.facts
    # A GPU that does not answer may have MIG or not: then nothing is said about it.
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
    """What only a MIG device has."""
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


def gpu_capacity(facts: GpuFacts) -> list[tuple[str, int | None]]:
    """Memory in bytes; none on parts with coherent memory, where NVML does not tell it."""
    return [("memory", facts.memory_bytes)]


def mig_capacity(mig: MigFacts) -> list[tuple[str, int | None]]:
    """Memory in bytes and counts of units."""
    return [
        ("memory", mig_memory(mig)),
        ("multiprocessors", mig.multiprocessors),
        ("copyEngines", mig.copy_engines),
        ("decoders", mig.decoders),
        ("encoders", mig.encoders),
        ("jpegEngines", mig.jpeg_engines),
        ("ofaEngines", mig.ofa_engines),
    ]
