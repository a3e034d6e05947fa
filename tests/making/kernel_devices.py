"""NICs, functions and GPUs whose health the kernel reports, and the rules for them."""

from __future__ import annotations

from node.inventory.model import (
    AttributeValue,
    Device,
    DeviceKind,
    DeviceNode,
    NodeRole,
    Snapshot,
    sorted_attributes,
)
from node.rules import Rule

CARING = (Rule("example.com/nic", link_health=True),)
CARELESS = (Rule("example.com/nic"),)


def nic(name: str = "nic-0000-84-00-0", **attributes: AttributeValue) -> Device:
    """A NIC; its address is read from its name."""
    told: dict[str, AttributeValue] = {"linkUp": True, "ifName": "ens1", "linkType": "ethernet", **attributes}
    return Device(
        name=name,
        kind=DeviceKind.NIC,
        vendor="mellanox",
        pci_address=address_of(name),
        attributes=sorted_attributes(told.items()),
    )


def vf(name: str = "nic-0000-84-00-1", above: str = "ens1", **attributes: AttributeValue) -> Device:
    return nic(name, **{"sriovFunction": "vf", "pfName": above, "ifName": "ens1v0", **attributes})


def gpu(name: str = "gpu-0000-83-00-0", *nodes: str) -> Device:
    made = tuple(DeviceNode(path, NodeRole.DEVICE, "c", 195, 0) for path in nodes or ("/dev/nvidia0",))
    control = DeviceNode("/dev/nvidiactl", NodeRole.CONTROL, "c", 195, 255)
    return Device(name, DeviceKind.GPU, "nvidia", pci_address=address_of(name), nodes=(*made, control))


def snapshot(*devices: Device) -> Snapshot:
    return Snapshot(1, tuple(sorted(devices, key=lambda device: device.name)))


def address_of(name: str) -> str:
    domain, bus, slot, function = name.split("-")[1:5]
    return f"{domain}:{bus}:{slot}.{function}"
