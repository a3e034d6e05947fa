"""Which way of giving a device to containers is its own, and the names of CDI specs that are ostler's.

NVIDIA's devices are given as NVIDIA's plugin gives them. All others are given as device nodes, NICs with variables that
name them besides. Their CDI kinds have ostler's own vendor: the kinds of their makers (``amd.com/gpu``) belong to the
makers' tools, and two specs that define one device make runtimes drop both. Their CDI device is the inventory's name,
which is unique and has only characters that CDI takes, whatever odd names the kernel has.
"""

from __future__ import annotations

from node.edits import nvidia
from node.inventory.model import NIC_KINDS, Device
from node.inventory.vendors import VENDORS, vendor_of

VENDOR = "ostler.dev"
"""CDI vendor of our specs for devices that are not NVIDIA's."""
_UNKNOWN_CLASS = "gpu"
OWN_FILES = nvidia.OWN_FILES | {
    f"{VENDOR}-{class_}.json" for class_ in ("nic", _UNKNOWN_CLASS, *(vendor.cdi_class for vendor in VENDORS))
}
"""File names that may be ours, of any family; a reader of other people's specs skips them."""


def cdi_kind(device: Device) -> str:
    """The CDI kind of a device that is not NVIDIA's: ``ostler.dev/nic``, ``ostler.dev/amd-gpu``, ..."""
    if device.kind in NIC_KINDS:
        return f"{VENDOR}/nic"
    vendor = vendor_of(device)
    return f"{VENDOR}/{vendor.cdi_class if vendor is not None else _UNKNOWN_CLASS}"
