"""Which way of giving a device to containers is its own, and the names of CDI specs that are ostler's.

NVIDIA's devices are given as NVIDIA's plugin gives them. All others are given as device nodes, NICs with variables that
name them besides. Their CDI kinds have ostler's own vendor: the kinds of their makers (``amd.com/gpu``) belong to the
makers' tools, and two specs that define one device make runtimes drop both. Their CDI device is the inventory's name,
which is unique and has only characters that CDI takes, whatever odd names the kernel has.
"""

from __future__ import annotations

from enum import StrEnum

from node.edits import nvidia
from node.inventory.model import NIC_KINDS, Device

VENDOR = "ostler.dev"
"""CDI vendor of our specs for devices that are not NVIDIA's."""
_CLASSES = {"amd": "amd-gpu", "intel": "intel-gpu"}
OWN_FILES = nvidia.OWN_FILES | {f"{VENDOR}-{class_}.json" for class_ in ("nic", "gpu", *_CLASSES.values())}
"""File names that may be ours, of any family; a reader of other people's specs skips them."""


class Family(StrEnum):
    """A way of giving devices to containers."""

    NVIDIA = "nvidia"
    NIC = "nic"
    GRAPHICS = "graphics"
    """GPUs that are their device nodes and nothing else: AMD's, Intel's."""


def family_of(device: Device) -> Family:
    """The device's family; what is neither a NIC nor NVIDIA's is given as device nodes."""
    if device.kind in NIC_KINDS:
        return Family.NIC
    return Family.NVIDIA if device.vendor == "nvidia" else Family.GRAPHICS


def cdi_kind(device: Device) -> str:
    """The CDI kind of a device that is not NVIDIA's: ``ostler.dev/nic``, ``ostler.dev/amd-gpu``, ..."""
    class_ = "nic" if family_of(device) is Family.NIC else _CLASSES.get(device.vendor, "gpu")
    return f"{VENDOR}/{class_}"
