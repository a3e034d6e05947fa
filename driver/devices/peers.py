"""What a peer's driver would say of a device, in the peer's domain, so that claims written for it run on ours.

Pure. Names, types and texts are the peer's; what the node does not tell is absent, as there: DRANET's names of vendors
and devices out of pci.ids, addresses and what hangs on an interface. The SR-IOV driver publishes virtual functions
only, NVIDIA's its own GPUs only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driver.devices.fact import Fact
from driver.devices.offered import DraDevice
from driver.devices.peer import Peer
from node.inventory.model import NIC_KINDS, AttributeValue, Device

_NVIDIA = (
    "type",
    "uuid",
    "parentUUID",
    "profile",
    "productName",
    "brand",
    "architecture",
    "cudaComputeCapability",
    "driverVersion",
    "cudaDriverVersion",
    "addressingMode",
    "gpuModuleID",
)
_ENCAPSULATION = {"ethernet": "ether", "infiniband": "infiniband"}

Named = Iterator[tuple[str, AttributeValue | None]]


def peer_facts(peer: Peer, offered: DraDevice) -> list[Fact]:
    """What this peer would publish of the device, most important first; nothing for a device that is not its own."""
    return list(_SPEAKERS[peer](offered)) if is_of(peer, offered.device) else []


def is_of(peer: Peer, device: Device) -> bool:
    """Whether this peer would publish the device."""
    if peer is Peer.NVIDIA:
        return device.vendor == "nvidia" and device.kind not in NIC_KINDS
    return device.kind in NIC_KINDS and (peer is Peer.DRANET or device.text("sriovFunction") == "vf")


def _nvidia(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    known: dict[str, AttributeValue] = {attribute.name: attribute.value for attribute in device.attributes}
    yield from (Fact(f"{Peer.NVIDIA}/{name}", known[name]) for name in _NVIDIA if name in known)
    for capacity in device.capacity:
        yield Fact(f"{Peer.NVIDIA}/{capacity.name}", capacity.value, amount=True, bytes=capacity.name == "memory")


def _dranet(offered: DraDevice) -> Iterator[Fact]:
    names = _dranet_names(offered.device)
    yield from (Fact(f"{Peer.DRANET}/{name}", found) for name, found in names if found is not None)


def _dranet_names(device: Device) -> Named:
    function = device.text("sriovFunction")
    total = device.attribute("sriovTotalVfs")
    yield "ifName", device.attribute("ifName")
    yield "rdma", device.attribute("rdma")
    yield "rdmaDevice", device.attribute("rdmaDevice")
    yield "numaNode", device.numa_node
    yield "mac", device.attribute("mac")
    yield "state", device.attribute("operState")
    yield "mtu", device.attribute("mtu")
    yield "pciAddress", device.pci_address
    yield "encapsulation", _ENCAPSULATION.get(device.text("linkType"))
    yield "type", "device" if device.text("ifName") else None
    yield "sriov", bool(total) if function != "vf" else False
    yield "sriovVfs", device.attribute("sriovVfs")
    yield "isSriovVf", True if function == "vf" else None
    yield "virtual", False


def _sriov(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    yield from (Fact(f"{Peer.SRIOV}/{name}", found) for name, found in _sriov_names(device) if found is not None)
    yield Fact("k8s.cni.cncf.io/resourceName", offered.rule.resource_of(device))
    if device.pci_address is not None:
        yield Fact("k8s.cni.cncf.io/deviceID", device.pci_address)
    if device.numa_node is not None:
        yield Fact(f"{Peer.DRANET}/numaNode", device.numa_node)


def _sriov_names(device: Device) -> Named:
    yield "vendor", device.attribute("pciVendor")
    yield "deviceID", device.attribute("pciDevice")
    yield "pciAddress", device.pci_address
    yield "PFName", device.attribute("pfName")
    yield "pfPciAddress", device.attribute("pfPciAddress")
    yield "vfID", device.attribute("vfIndex")
    yield "rdmaCapable", device.attribute("rdma")
    yield "linkType", device.attribute("linkType")
    yield "EswitchMode", device.attribute("eswitchMode")


_SPEAKERS: dict[Peer, Callable[[DraDevice], Iterator[Fact]]] = {
    Peer.NVIDIA: _nvidia,
    Peer.DRANET: _dranet,
    Peer.SRIOV: _sriov,
}
