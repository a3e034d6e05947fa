"""Attributes of NICs, the words that rules and claims select them by.

Pure. Names are lower camel case as all attributes are; what is not known is absent. A virtual function or subfunction
names its physical function; a function without SR-IOV is its own.
"""

from __future__ import annotations

from node.inventory.attribute_pool import Pairs
from node.inventory.net_facts import RdmaPort
from node.inventory.nics.link import link_type, link_up, port_state, rate_gbps
from node.inventory.nics.parts import NicPart, NicPort
from node.inventory.pci import pci_digits, standard_attributes

NIC_VENDORS = {
    "15b3": "mellanox",
    "8086": "intel",
    "14e4": "broadcom",
    "1d0f": "amazon",
    "1ae0": "google",
    "1af4": "redhat",
    "1425": "chelsio",
    "1077": "marvell",
    "177d": "marvell",
    "1022": "amd",
    "1dd8": "amd",
    "1137": "cisco",
    "19e5": "huawei",
}
"""Names of NICs' vendors by their PCI ids."""


def nic_vendor(pci_vendor: str) -> str:
    """The vendor's name for sysfs' text (``0x15b3`` gives ``mellanox``), else the four digits."""
    digits = pci_digits(pci_vendor)
    return NIC_VENDORS.get(digits, digits)


def function_attributes(part: NicPart, physical: NicPart | None) -> Pairs:
    """What all ports of a function share; ``physical``: the function that a virtual one or subfunction belongs to."""
    function, subfunction = part.function, part.subfunction
    # A virtual function whose physical one is not listed (in a virtual machine it never is) has nobody to name.
    above = physical or (part if subfunction is None and function.physfn is None else None)
    return [
        *standard_attributes(function.address, function),
        ("pciVendor", pci_digits(function.vendor)),
        ("pciDevice", pci_digits(function.device)),
        ("driver", part.driver),
        ("acpiIndex", function.acpi_index),
        ("sriovFunction", _sriov_function(part)),
        ("vfIndex", function.vf_index if subfunction is None else None),
        ("pfName", _interface_name(above.ports[0]) if above is not None else None),
        ("pfPciAddress", above.function.address if above is not None else function.physfn or function.address),
        ("sriovVfs", function.sriov_numvfs if subfunction is None else None),
        ("sriovTotalVfs", function.sriov_totalvfs if subfunction is None else None),
        ("eswitchMode", _switch_mode(above) if above is not None else None),
        ("sfNumber", subfunction.sfnum if subfunction is not None else None),
        ("auxDevice", subfunction.name if subfunction is not None else None),
    ]


def port_attributes(part: NicPart, port: NicPort, physical: NicPart | None) -> Pairs:
    """What is one port's own."""
    interface, seen = port.interface, port.visible_interface
    below = physical.ports[0] if physical is not None else None
    rdma = port.rdma[0] if port.rdma else None
    pairs: Pairs = [
        ("rdma", rdma is not None),
        ("linkType", link_type(port, below)),
        ("linkUp", link_up(port, below)),
        ("firmwareVersion", part.firmware or (rdma.firmware_version if rdma is not None else None)),
        ("inPod", port.in_pod or None),
        ("port", port.number if len(part.ports) > 1 else None),
    ]
    if len(part.ports) > 1 and part.subfunction is None and part.function.physfn is None:
        pairs.append(("pfName", _interface_name(port)))
    if interface is not None:
        pairs += [
            ("ifName", interface.name),
            ("mac", interface.address if _is_set(interface.address) else None),
            ("mtu", interface.mtu),
            ("operState", seen.operstate if seen is not None else None),
            ("linkSpeedMbps", interface.speed_mbps if (interface.speed_mbps or 0) > 0 else None),
        ]
    if rdma is not None:
        pairs += [("rdmaDevice", rdma.name), ("nodeGuid", rdma.node_guid), *_rdma_port(port.rdma_port)]
    return pairs


def _rdma_port(port: RdmaPort | None) -> Pairs:
    return [
        ("rdmaPortState", port_state(port)),
        ("rdmaRateGbps", rate_gbps(port)),
        ("pKey", port.pkey if port is not None else None),
    ]


def _sriov_function(part: NicPart) -> str | None:
    if part.subfunction is not None:
        return "sf"
    if part.function.physfn is not None:
        return "vf"
    return "pf" if part.function.sriov_totalvfs is not None else None


def _switch_mode(part: NicPart) -> str | None:
    """The e-switch's mode, as far as its uplink tells; only functions with SR-IOV have an e-switch."""
    if part.switchdev:
        return "switchdev"
    known = part.function.sriov_totalvfs is not None and part.ports[0].interface is not None
    return "legacy" if known else None


def _interface_name(port: NicPort) -> str | None:
    return port.interface.name if port.interface is not None else None


def _is_set(mac: str | None) -> bool:
    """Whether it is an address: a virtual function that got none yet has zeros."""
    return bool((mac or "").strip("0:"))
