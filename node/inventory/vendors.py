"""The GPU vendors that ostler knows. A new vendor is a folder beside this file and a line here."""

from __future__ import annotations

from node.inventory.amd.vendor import AMD
from node.inventory.habana.vendor import HABANA
from node.inventory.intel.vendor import INTEL
from node.inventory.model import NIC_KINDS, Device
from node.inventory.nvidia.vendor import NVIDIA
from node.inventory.pci import address_label
from node.inventory.vendor import Family, Vendor

VENDORS: tuple[Vendor, ...] = (NVIDIA, AMD, INTEL, HABANA)

_BY_NAME = {vendor.name: vendor for vendor in VENDORS}


def vendor_of(device: Device) -> Vendor | None:
    """The vendor of a GPU or a part of one; None for NICs, and for a vendor that is not known."""
    return None if device.kind in NIC_KINDS else _BY_NAME.get(device.vendor)


def family_of(device: Device) -> Family:
    """How containers get the device; for an unknown vendor by its device nodes."""
    if device.kind in NIC_KINDS:
        return Family.NIC
    vendor = _BY_NAME.get(device.vendor)
    return vendor.family if vendor is not None else Family.NODES


def vendor_id(device: Device) -> str:
    """The id that the replaced plugin gives this device; its own name if that plugin has none.

    Multus and the SR-IOV CNI take a NIC's PCI address, NVIDIA's runtime a UUID; a node that changes over keeps the ids
    that running pods hold. Of a NIC: its PCI address, of a subfunction its auxiliary device (``mlx5_core.sf.2``); a
    further port of a function has its own name, since the first one has the address.
    """
    if device.kind not in NIC_KINDS:
        vendor = _BY_NAME.get(device.vendor)
        return (device.pci_address if vendor is None else vendor.id_of(device)) or device.name
    if device.text("sriovFunction") == "sf":
        return device.text("auxDevice") or device.name
    address = device.pci_address
    has_address_alone = address is not None and device.name == f"{device.kind.value}-{address_label(address)}"
    return address if address is not None and has_address_alone else device.name
