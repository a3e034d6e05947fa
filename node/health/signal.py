"""Signals of a device's health: events, which happen once, and conditions, which last until a look finds them gone.

Sources (NVML's event thread, polls of NVML and sysfs, rtnetlink, uevents) produce these values and decide nothing; only
``node.health`` turns them into a state.

A whole device's trouble also reaches its parts: a GPU's its MIG devices, a physical function's its virtual functions
and subfunctions. An event of a GPU without an instance concerns all its parts, and so does an uncontained memory error
whatever instance it names; the GPU's counter of memory errors concerns none of them. Nothing reaches a neighbour or, in
full, a whole: an instance that is sick leaves its GPU degraded at most. What a scan finds reaches no part here, because
the scan itself says what it means for each device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from node.inventory.model import Device, DeviceKind
from node.values import Value, value

Instance = tuple[int, int]
"""GPU instance and compute instance."""


class Trouble(StrEnum):
    """The kinds of trouble; the values are words of metrics, taints and configuration."""

    XID = "xid"
    ECC = "ecc"
    """Uncorrectable memory errors."""
    ROW_REMAP = "row-remap"
    """A memory row waits to be remapped (reset), or could not be (replace)."""
    RECOVERY = "recovery"
    """The driver names a recovery action (NVML field 230), which is the code; none where a GPU is just unavailable."""
    LOST = "lost"
    """It left the bus, or does not answer its driver any more."""
    SRAM = "sram"
    """The GPU's SRAM has so many uncorrectable errors that NVIDIA wants the GPU examined."""
    FABRIC = "fabric"
    """The NVLink fabric (switches between GPUs) serves it only in part or not at all; the code says which."""
    NVLINK = "nvlink"
    THERMAL = "thermal"
    POWER = "power"
    CARRIER = "carrier"
    """The link of a NIC is down."""
    PORT = "port"
    """The RDMA port is not active."""
    UNBOUND = "unbound"
    """No driver is bound to it."""
    NODE = "node"
    """Its device node does not exist."""
    AER = "aer"
    """PCIe errors that were not correctable."""
    PCIE_LINK = "pcie-link"
    """Its PCIe link has fewer lanes or less speed than it should have."""
    MPS = "mps"
    """Its MPS server ended, and the pods that shared it lost their data on it."""
    SILENT = "silent"
    """The driver does not answer about any device."""
    SCAN = "scan"
    """A trouble that only the scan found; its text says which."""
    PERSON = "person"
    """A person's override."""


@value
class HealthEvent(Value):
    """Something that happened to the device of that name at a time (Unix seconds).

    ``code``: the XID. ``instance``: GPU instance and compute instance of a GPU in MIG mode, None for all of it.
    """

    device: str
    kind: Trouble
    at: float
    detail: str = ""
    code: int | None = None
    instance: Instance | None = None


@value
class Condition(Value):
    """A trouble that is there at the moment; ``code``: the recovery action, or the number that the kind has."""

    kind: Trouble
    detail: str = ""
    code: int | None = None


@value
class Look(Value):
    """What a source finds wrong with every device that it has read (nothing: it is healthy), at a time. A missing
    device was not read, and keeps the source's earlier findings. ``source`` names it.
    """

    source: str
    at: float
    found: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)


ALL = 0xFFFFFFFF
"""NVML's number for "of all instances"."""

_OF_GPUS = frozenset(Trouble) - {Trouble.SCAN, Trouble.SILENT}
# MIG devices have no peers.
_OF_MIG = _OF_GPUS - {Trouble.FABRIC}
# A virtual function has device nodes, a driver and, where a rule asks for it, a link of its own.
_OF_NICS = _OF_GPUS - {Trouble.NODE, Trouble.UNBOUND, Trouble.CARRIER, Trouble.PORT}


def reaches(kind: Trouble, part: Device) -> bool:
    """Whether such a trouble of a whole concerns this part as well."""
    return kind in (_OF_MIG if part.kind is DeviceKind.MIG else _OF_NICS)


def instance_of(given: Instance | None) -> Instance | None:
    """The instance that an event is about, None for all of the GPU."""
    return None if given is None or given[0] in (ALL, -1) else given


def is_instance(part: Device, instance: Instance) -> bool:
    """Whether a MIG device is that compute instance, or one of that GPU instance if no compute instance is named."""
    gpu, compute = instance
    if part.attribute("gpuInstanceID") != gpu:
        return False
    return compute in (ALL, -1) or part.attribute("computeInstanceID") in (compute, None)
