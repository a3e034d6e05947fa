"""Attributes of NICs, by which rules and claims select them, and the state of their links.

Pure. Names are lower camel case, as all attributes are; an unknown attribute is absent. A virtual function or
subfunction names its physical function; a function without SR-IOV names itself.

An interface that is administratively down has no carrier to read. For a physical function that means that its link is
down. An idle virtual function waits for its pod in just that state, so its link is that of its physical function.
"""

from __future__ import annotations

from node.inventory.assembly import Pairs
from node.inventory.facts import PciFunction
from node.inventory.net_facts import RdmaPort
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


def function_attributes(part: NicPart, physical: NicPart | None, direct: PciFunction | None = None) -> Pairs:
    """Attributes that all ports of a function share.

    ``physical``: the function that a virtual or subfunction is of. ``direct``: the Data Direct function of its NIC.
    """
    function, subfunction = part.function, part.subfunction
    # A virtual function cannot name its physical one if that is not listed (in a virtual machine it never is).
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
        ("dataDirect", direct.address if direct is not None else None),
    ]


def port_attributes(part: NicPart, port: NicPort, physical: NicPart | None) -> Pairs:
    """Attributes of one port."""
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
    """The e-switch's mode, as far as its uplink shows it; only functions with SR-IOV have an e-switch."""
    if part.switchdev:
        return "switchdev"
    known = part.function.sriov_totalvfs is not None and part.ports[0].interface is not None
    return "legacy" if known else None


def _interface_name(port: NicPort) -> str | None:
    return port.interface.name if port.interface is not None else None


def _is_set(mac: str | None) -> bool:
    """Whether it is an address: a virtual function that got none yet has zeros."""
    return bool((mac or "").strip("0:"))


_ACTIVE = "active"
_DOWN = frozenset({"down", "lowerlayerdown", "notpresent"})
_ETHERNET, _INFINIBAND = "ethernet", "infiniband"
_LINK_TYPES = {1: _ETHERNET, 32: _INFINIBAND}
_LINK_LAYERS = {"ethernet": _ETHERNET, "infiniband": _INFINIBAND}


def link_up(port: NicPort, physical: NicPort | None) -> bool | None:
    """Whether the link is up; None when that is unknown.

    ``physical``: the port of the physical function that this virtual one or subfunction goes through.
    """
    interface = port.visible_interface
    if link_type(port, None) == _INFINIBAND or interface is None:
        # An IPoIB interface may be down while the InfiniBand port is in use.
        active = _active(port.rdma_port)
        if active is not None:
            return active
    if interface is not None:
        if interface.carrier is not None:
            return interface.carrier
        if interface.operstate == "up":
            return True
        if physical is None and interface.operstate in _DOWN:
            return False
    if physical is None:
        return _active(port.rdma_port)
    return link_up(physical, None)


def link_type(port: NicPort, physical: NicPort | None) -> str | None:
    """``ethernet`` or ``infiniband``, of the interface, else of the RDMA port, else of the physical function."""
    found = None
    if port.interface is not None and port.interface.link_type is not None:
        found = _LINK_TYPES.get(port.interface.link_type)
    if found is None and port.rdma_port is not None:
        found = _LINK_LAYERS.get((port.rdma_port.link_layer or "").lower())
    return found or (link_type(physical, None) if physical is not None else None)


def port_state(port: RdmaPort | None) -> str | None:
    """``active`` of ``4: ACTIVE``."""
    text = port.state if port is not None else None
    return (text or "").partition(":")[2].strip().lower() or None


def rate_gbps(port: RdmaPort | None) -> int | None:
    """400 of ``400 Gb/sec (4X NDR)``; whole gigabits per second, rounded down."""
    text = port.rate if port is not None else None
    rate, unit, _ = (text or "").partition(" Gb/sec")
    whole = rate.partition(".")[0]
    return int(whole) if unit and whole.isascii() and whole.isdecimal() else None


def _active(port: RdmaPort | None) -> bool | None:
    state = port_state(port)
    return state == _ACTIVE if state is not None else None
