"""What a uevent says of a device: that its function left the bus, that its driver let go of it, that a node of it went.

Pure. The event is believed at once, because every millisecond counts there; a look at /sys follows, and its word
replaces the event's. A parent's trouble is not spread here: whoever judges health knows what belongs together.

A virtual function or subfunction that is removed was mostly taken down on purpose, and is removed before the kernel
counts it no more; so its event says only that nothing drives it, and a scan says whether it left the bus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from node.health.signal import Condition, Trouble
from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole
from node.inventory.retention import is_gone

_PARTS = (DeviceKind.MIG, DeviceKind.PARTITION)
_OWN = (NodeRole.DEVICE, NodeRole.RENDER)
_FUNCTIONS = frozenset({"pci", "auxiliary"})
_NODES = frozenset({"drm", "uio", "vfio", "vfio-dev"})
"""Subsystems whose entries are named as their device nodes. Those of RDMA are not here: moving an RDMA device into a
pod's network namespace removes and makes its nodes, and that is no fault."""

_GONE = Condition(Trouble.LOST, "it was removed from its bus")
_UNBOUND = Condition(Trouble.UNBOUND, "no driver is bound to it")
_REMOVED = Condition(Trouble.UNBOUND, "its function was removed")


def names_of(devices: Iterable[Device]) -> Mapping[str, Sequence[str]]:
    """Devices by what uevents call them: PCI address, auxiliary device, and last part of their own nodes' paths.

    Not here: devices that are gone already, parts of GPUs, and nodes that several devices share.
    """
    found: dict[str, list[str]] = {}
    for device in devices:
        if device.kind in _PARTS or is_gone(device):
            continue
        auxiliary = device.text("auxDevice")
        names = [auxiliary] if auxiliary else [device.pci_address or ""]
        names += [_last(node) for node in device.nodes_of(*_OWN)]
        for name in {*names} - {""}:
            found.setdefault(name, []).append(device.name)
    return found


def trouble_of(action: str, subsystem: str, name: str, *, made: bool = False) -> Condition | None:
    """What an event says of a device of that name, None when it says that nothing is wrong any more.

    ``made``: it is a virtual function or a subfunction.
    """
    if subsystem in _NODES and action == "remove":
        return Condition(Trouble.NODE, f"its device node {name} was removed")
    if action == "remove":
        return _REMOVED if made else _GONE
    return _UNBOUND if action == "unbind" else None


def is_made(device: Device) -> bool:
    """Whether software makes the device's function and takes it down: a virtual function or a subfunction."""
    return device.text("sriovFunction") in ("vf", "sf") or bool(device.text("auxDevice"))


def concerns_devices(subsystem: str) -> bool:
    """Whether events of a subsystem are about functions or nodes of devices."""
    return subsystem in _FUNCTIONS or subsystem in _NODES


def _last(node: DeviceNode) -> str:
    return (node.on_host or node.path).rpartition("/")[2]
