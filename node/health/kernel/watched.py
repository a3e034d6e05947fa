"""Which functions, nodes and ports are looked at for which devices. Pure.

Several devices may be on one function (ports of a NIC, subfunctions, MIG devices beside their GPU); it is looked at
once. Parts of GPUs have nodes of their own and nothing else; what their GPU has, whoever judges health spreads.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.kernel.links import nic_link
from node.inventory.model import Device, DeviceKind, NodeRole, Snapshot
from node.inventory.retention import is_gone
from node.rules import Rule
from node.values import Value, value

_PARTS = (DeviceKind.MIG, DeviceKind.PARTITION)
_OWN = (NodeRole.DEVICE, NodeRole.CAPABILITY, NodeRole.RENDER, NodeRole.RDMA)
_SHARED = "/dev/infiniband/rdma_cm"


@value
class Watched(Value):
    """A device and what to look at; a device without anything is well as far as it goes.

    ``address``: its PCI function, empty for one that is not looked at by itself. ``auxiliary``: its device on the
    auxiliary bus. ``virtual``: a virtual function, which has no PCIe link and whose errors its physical one counts.
    ``speed_counts``: see ``pcie.link_troubles``. ``nodes``: paths on the host. ``rdma``: RDMA device and port.
    """

    device: str
    address: str = ""
    auxiliary: str = ""
    virtual: bool = False
    speed_counts: bool = False
    nodes: tuple[str, ...] = ()
    rdma: tuple[str, int] | None = None


def watched(snapshot: Snapshot, rules: Iterable[Rule]) -> tuple[Watched, ...]:
    """Everything that is to be looked at, in the snapshot's order."""
    rules = tuple(rules)
    return tuple([_watched(device, rules) for device in snapshot.devices])


def _watched(device: Device, rules: tuple[Rule, ...]) -> Watched:
    if is_gone(device):
        return Watched(device.name)
    nic = nic_link(device, rules)
    # In a pod's network namespace the RDMA device and its nodes are that pod's matter.
    roles = _OWN if nic is None or not nic.away else tuple(role for role in _OWN if role is not NodeRole.RDMA)
    nodes = tuple([node.on_host or node.path for node in device.nodes_of(*roles) if node.path != _SHARED])
    if device.kind in _PARTS:
        return Watched(device.name, nodes=nodes)
    virtual = device.text("sriovFunction") == "vf"
    asked = nic is not None and nic.asked and not nic.away and not (virtual or nic.above)
    return Watched(
        device.name,
        address=device.pci_address or "",
        auxiliary=device.text("auxDevice"),
        virtual=virtual,
        speed_counts=nic is not None,
        nodes=nodes,
        rdma=_rdma(device) if asked else None,
    )


def _rdma(device: Device) -> tuple[str, int] | None:
    name, port = device.text("rdmaDevice"), device.attribute("port")
    # An adapter counts its RDMA ports from 1 and its interfaces' ports from 0.
    return (name, port + 1 if isinstance(port, int) else 1) if name else None
