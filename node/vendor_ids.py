"""The ids that people's other tools know devices by: those of the plugins that ostler replaces.

Multus and the SR-IOV CNI take a NIC's PCI address, NVIDIA's runtime a UUID; a node that changes over keeps the ids that
running pods hold. Pure.
"""

from __future__ import annotations

import re

from node.inventory.model import NIC_KINDS, Device, DeviceKind, NodeRole
from node.inventory.pci import address_label

_CARD = r"/dev/dri/(card\d+)"


def vendor_id(device: Device) -> str:
    """The id that the plugin which ostler replaces gives this device; its own name where that plugin knows none.

    NVIDIA: the UUID. A NIC: its PCI address, a subfunction's auxiliary device (``mlx5_core.sf.2``); a further port of a
    function has its own name, since the first one has the address. Intel GPUs: ``card0-0``, as their plugin counts
    shares. AMD: the PCI address, for a further partition its platform device (``amdgpu_xcp_1``).
    """
    if device.vendor == "nvidia":
        return device.uuid or device.name
    if device.kind is DeviceKind.PARTITION:
        return device.text("platformDevice") or device.name
    if device.text("sriovFunction") == "sf":
        return device.text("auxDevice") or device.name
    if device.vendor == "intel" and device.kind is DeviceKind.GPU:
        return _card_id(device) or device.name
    if device.pci_address is None or (device.kind in NIC_KINDS and not _has_address_alone(device)):
        return device.name
    return device.pci_address


def _card_id(device: Device) -> str:
    cards = (re.fullmatch(_CARD, node.path) for node in device.nodes_of(NodeRole.DEVICE))
    return next((f"{card[1]}-0" for card in cards if card is not None), "")


def _has_address_alone(device: Device) -> bool:
    return device.name == f"{device.kind.value}-{address_label(device.pci_address or '')}"
