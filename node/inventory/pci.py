"""PCI facts that every vendor reads the same way: addresses, the PCIe root, the NUMA node, the class.

Pure. GPUs and NICs get their standard attributes from here, so that a claim can match one with the other.
"""

from __future__ import annotations

import re

from node.inventory.facts import PciFunction
from node.inventory.model import AttributeValue

_GROUP = re.compile(r"[0-9]{1,9}")
_BUS_ID = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""An address as sysfs writes it; the domains of Intel VMD have more than four digits."""
_STANDARD_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
"""The form of an address for Kubernetes' deviceattribute helper; it refuses longer domains."""

DISPLAY_CLASSES = {0x0300: "graphics", 0x0302: "compute"}
"""PCI classes of GPUs: VGA controller and 3D controller, with the mode that GPU feature discovery calls them."""


NETWORK_CLASS = 0x02
INFINIBAND_CLASS = 0x0207
DISPLAY_CLASS = 0x03
MELLANOX_VENDOR = "0x15b3"
DATA_DIRECT_DEVICE = "0x2100"
"""PCI device id of the function through which a ConnectX-8 reaches the GPU beside it."""


def pci_address(bus_id: str | None) -> str | None:
    """The address as sysfs writes it: ``00000000:1B:00.0`` gives ``0000:1b:00.0``; None for other texts.

    A domain above ffff (Intel VMD) keeps all its digits, as in sysfs.
    """
    match = _BUS_ID.fullmatch(bus_id or "")
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def address_label(address: str) -> str:
    """The address as a part of a DNS label: ``0000:1b:00.0`` gives ``0000-1b-00-0``."""
    return address.replace(":", "-").replace(".", "-")


def bus_of(address: str) -> str:
    """Domain and bus of an address: ``0000:1b``."""
    return address.rpartition(":")[0]


def base_class(function: PciFunction) -> int | None:
    """Base class and subclass (``0x030200`` gives 0x0302), None if the text is no number."""
    try:
        return int(function.class_code, 16) >> 8
    except ValueError:
        return None


def display_mode(function: PciFunction) -> str | None:
    """``graphics`` or ``compute`` for GPUs, None for every other function."""
    return DISPLAY_CLASSES.get(base_class(function) or 0)


def is_network(function: PciFunction) -> bool:
    """Whether the function is a network controller of whatever subclass (Ethernet, InfiniBand, other)."""
    return (base_class(function) or 0) >> 8 == NETWORK_CLASS


def is_data_direct(function: PciFunction) -> bool:
    """Whether the function is the second face of a NIC, beside a GPU, and no device of its own."""
    return function.vendor == MELLANOX_VENDOR and function.device == DATA_DIRECT_DEVICE


def pci_digits(text: str) -> str:
    """A vendor or device id as people write it: ``0x15B3`` gives ``15b3``."""
    return text.lower().removeprefix("0x")


def pcie_root(function: PciFunction) -> str | None:
    """The PCIe root complex (``pci0000:15``) that the function hangs below, by the rule of Kubernetes' helper.

    None where that helper gives an error, so that no two drivers disagree: for a domain of more than four digits, and
    for a host bridge that is not at the top of the tree (platform devices of some ARM boards, VMBus).
    """
    root, _, below = function.path.partition("/")
    if not root.startswith("pci") or not _STANDARD_ADDRESS.fullmatch(function.address):
        return None
    return root if below.rpartition("/")[2] == function.address else None


def numa_node(function: PciFunction | None) -> int | None:
    """The NUMA node; None when unknown: sysfs says -1, which must never reach the kubelet."""
    if function is None or function.numa_node is None or function.numa_node < 0:
        return None
    return function.numa_node


def standard_attributes(address: str | None, function: PciFunction | None) -> list[tuple[str, AttributeValue | None]]:
    """The attributes that Kubernetes standardises for PCI devices, and the IOMMU group."""
    group = (function.iommu_group if function is not None else None) or ""
    return [
        ("resource.kubernetes.io/pciBusID", address),
        ("resource.kubernetes.io/pcieRoot", pcie_root(function) if function is not None else None),
        ("resource.kubernetes.io/numaNode", numa_node(function)),
        ("iommuGroup", int(group) if _GROUP.fullmatch(group) else None),
    ]
