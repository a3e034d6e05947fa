"""Whose trouble is whose: a GPU's reaches its MIG devices, a physical function's its virtual and subfunctions. Pure.

Nothing reaches a neighbour or, in full, a whole: an instance that is sick leaves its GPU degraded at most. What a scan
finds reaches no part here, because the scan says itself what it means for each device.
"""

from __future__ import annotations

from node.health.signal import Trouble
from node.health.track import Instance
from node.inventory.model import Device, DeviceKind

ALL = 0xFFFFFFFF
"""NVML's number for "of all instances"."""

_OF_GPUS = frozenset(Trouble) - {Trouble.SCAN, Trouble.SILENT}
# MIG devices have no peers.
_OF_MIG = _OF_GPUS - {Trouble.FABRIC}
# A virtual function has device nodes, a driver and, where a rule asks for it, a link of its own.
_OF_NICS = _OF_GPUS - {Trouble.NODE, Trouble.UNBOUND, Trouble.CARRIER, Trouble.PORT}


def reaches(kind: Trouble, part: Device) -> bool:
    """Whether such a trouble of a whole is one of this part as well."""
    return kind in (_OF_MIG if part.kind is DeviceKind.MIG else _OF_NICS)


def instance_of(given: Instance | None) -> Instance | None:
    """The instance that an event is about, None for all of the GPU."""
    return None if given is None or given[0] in (ALL, -1) else given


def is_instance(part: Device, instance: Instance) -> bool:
    """Whether a MIG device is that compute instance, or one of that GPU instance where no compute instance is told."""
    gpu, compute = instance
    if part.attribute("gpuInstanceID") != gpu:
        return False
    return compute in (ALL, -1) or part.attribute("computeInstanceID") in (compute, None)
