"""What uevents, error counters and link registers mean for a device. Pure.

A uevent says that a function left the bus, that its driver was unbound, or that one of its nodes was removed. It takes
effect at once, because every millisecond counts; a look at /sys follows and replaces it. A parent's trouble is not
passed on here: the health keeper knows what belongs together. A virtual function or subfunction is mostly removed on
purpose, and before the kernel lowers their number; so the event only says that it has no driver, and a scan decides
whether it left the bus.

PCIe errors (Advanced Error Reporting, the kernel's ABI file sysfs-bus-pci-devices-aer_stats) are counted since boot, so
only growth between two looks says something: any growth of uncorrectable errors, and of correctable ones a rate that a
healthy link does not have.

A PCIe link should run as fast as the lesser of its two ends can. Missing lanes are a fault of every device. Low speed
is one of NICs only: GPUs lower it when they are idle (to 2.5 GT/s and back within milliseconds), so for them it says
nothing. Virtual functions have no link of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from node.health.signal import Condition, Trouble
from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole, is_gone
from node.values import Value, value

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
    """Devices by their names in uevents: PCI address, auxiliary device, and last part of their own nodes' paths.

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
    """The condition after an event of a device of that name; None if nothing is wrong any more. ``made``: it is a
    virtual function or a subfunction.
    """
    if subsystem in _NODES and action == "remove":
        return Condition(Trouble.NODE, f"its device node {name} was removed")
    if action == "remove":
        return _REMOVED if made else _GONE
    return _UNBOUND if action == "unbind" else None


def is_made(device: Device) -> bool:
    """Whether software creates and removes the device's function: a virtual function or a subfunction."""
    return device.text("sriovFunction") in ("vf", "sf") or bool(device.text("auxDevice"))


def concerns_devices(subsystem: str) -> bool:
    """Whether events of a subsystem are about functions or nodes of devices."""
    return subsystem in _FUNCTIONS or subsystem in _NODES


def _last(node: DeviceNode) -> str:
    return (node.on_host or node.path).rpartition("/")[2]


CORRECTABLE, NONFATAL, FATAL = 0, 1, 2
"""``Condition.code`` of ``Trouble.AER``: the worst kind of error that was counted."""
CORRECTABLE_PER_SECOND = 10.0
"""Corrected errors beyond which a link is bad: NVIDIA and NIC vendors tolerate some a minute; a bad cable makes
hundreds a second."""
_Number = TypeVar("_Number", int, float)
_MOST_LANES = 32
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d{1,19})$", re.MULTILINE)
_SPEED = re.compile(r"(\d{1,3}(?:\.\d{1,2})?) GT/s")
_LANES = re.compile(r"\d{1,3}")


@value
class AerCounts(Value):
    """Errors since boot; None if the function does not count them."""

    correctable: int | None = None
    nonfatal: int | None = None
    fatal: int | None = None


@value
class PcieLink(Value):
    """Lanes, and gigatransfers per second; None if unknown."""

    lanes: int | None = None
    speed: float | None = None

    def lesser(self, other: PcieLink) -> PcieLink:
        """The most that both ends can do; an end with an unknown value is no limit."""
        return PcieLink(_least(self.lanes, other.lanes), _least(self.speed, other.speed))


def aer_total(text: str) -> int | None:
    """The sum at the end of an ``aer_dev_*`` file, None when it has none."""
    found = _TOTAL.search(text)
    return int(found[1]) if found else None


def pcie_link(lanes: str, speed: str) -> PcieLink:
    """From the texts of two attributes (``16`` and ``32.0 GT/s PCIe``); 0 lanes, 63 and ``Unknown`` mean unknown."""
    number = int(lanes) if _LANES.fullmatch(lanes) else 0
    found = _SPEED.match(speed)
    return PcieLink(number if 0 < number <= _MOST_LANES else None, float(found[1]) if found else None)


def aer_troubles(before: AerCounts, now: AerCounts, seconds: float) -> tuple[Condition, ...]:
    """The condition for the growth within so many seconds; counters that fell belong to a new device."""
    fatal, nonfatal = _growth(before.fatal, now.fatal), _growth(before.nonfatal, now.nonfatal)
    if fatal or nonfatal:
        # No numbers in the texts: a reason that keeps changing would be reported again and again.
        detail = "fatal PCIe errors" if fatal else "PCIe errors that could not be corrected"
        return (Condition(Trouble.AER, detail, FATAL if fatal else NONFATAL),)
    corrected = _growth(before.correctable, now.correctable)
    if seconds > 0 and corrected / seconds > CORRECTABLE_PER_SECOND:
        detail = f"more than {CORRECTABLE_PER_SECOND:g} corrected PCIe errors a second"
        return (Condition(Trouble.AER, detail, CORRECTABLE),)
    return ()


def link_troubles(current: PcieLink, capable: PcieLink, *, speed_counts: bool) -> tuple[Condition, ...]:
    """The lanes and speed that the link lacks; ``speed_counts``: a low speed is a fault as well."""
    missing = []
    if current.lanes is not None and capable.lanes is not None and current.lanes < capable.lanes:
        missing.append(f"{current.lanes} of {capable.lanes} PCIe lanes")
    if speed_counts and current.speed is not None and capable.speed is not None and current.speed < capable.speed:
        missing.append(f"{current.speed:g} of {capable.speed:g} GT/s")
    return (Condition(Trouble.PCIE_LINK, f"its link runs with {' and '.join(missing)}"),) if missing else ()


def _least(one: _Number | None, other: _Number | None) -> _Number | None:
    return other if one is None else one if other is None else min(one, other)


def _growth(before: int | None, now: int | None) -> int:
    return max(now - before, 0) if before is not None and now is not None else 0
