"""Reads a device's health from /sys and /dev, file by file; it blocks, so it runs in a thread of its own.

It runs every few seconds for as long as the agent lives, on nodes with a thousand functions. So it looks once for the
files that a function lacks, reads the limits of a function once, and reads one link for a virtual function.

Files vanish while they are read, and drivers answer oddly: what cannot be read is unknown, and the unknown is no
trouble. A missing file is a trouble only if it existed before: a /sys that shows less than the driver does (a virtual
machine, a sandbox) is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from node.clocks import Clocks
from node.health.kernel.functions import AerCounts, PcieLink, aer_total, aer_troubles, link_troubles, pcie_link
from node.health.kernel.links import Watched
from node.health.signal import Condition, Trouble
from node.inventory.sysfs.files import inode_of, read_now
from node.values import Record, Value, record, value

Read = Callable[[str], str]
"""The text of a small file; raises OSError."""

_AER = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
_ACTIVE = ("4:", "5:")
"""How the states ACTIVE and ACTIVE_DEFER of an RDMA port begin."""


@value
class _Ends(Value):
    """The capabilities of both ends of a function's link, and its folder's inode: a new inode is a new device."""

    inode: int
    capable: PcieLink


@record
class _Function(Record):
    """The memory of a function between two looks."""

    ends: _Ends
    counts: AerCounts
    at: float
    counted: tuple[str, ...]


class FunctionFiles:
    """Looks at devices. ``dev_root``: what /dev is in, without a slash at its end.

    Belongs to one thread at a time.
    """

    def __init__(self, sys: str, dev_root: str, clocks: Clocks, read: Read = read_now) -> None:
        self._pci = f"{sys}/bus/pci/devices"
        self._auxiliary = f"{sys}/bus/auxiliary/devices"
        self._infiniband = f"{sys}/class/infiniband"
        self._dev_root = dev_root
        self._clock = clocks.monotonic
        self._read = read
        self._known: dict[str, _Function] = {}
        self._seen: set[str] = set()

    def troubles(self, device: Watched, function: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """The conditions of a device whose function has these troubles."""
        found = list(function)
        if device.auxiliary and not function:
            found += self._bound(f"{self._auxiliary}/{device.auxiliary}", made=True)
        missing = next((path for path in device.nodes if self._vanished(path)), None)
        if missing is not None:
            found.append(Condition(Trouble.NODE, f"its device node {missing} no longer exists"))
        if device.rdma is not None:
            found += self._port(*device.rdma)
        return tuple(found)

    def function(self, device: Watched) -> tuple[Condition, ...]:
        """The troubles of the device's PCI function."""
        folder = f"{self._pci}/{device.address}"
        if not device.address:
            return ()
        unbound = self._bound(folder, made=device.virtual)
        if device.virtual or (unbound and unbound[0].kind is Trouble.LOST):
            return unbound
        return (*unbound, *self._registers(folder, device))

    def forget(self, addresses: frozenset[str]) -> None:
        """Forget all functions but these."""
        for address in self._known.keys() - addresses:
            del self._known[address]

    def _bound(self, folder: str, *, made: bool) -> tuple[Condition, ...]:
        """Whether a device is on its bus and has its driver; a device that was never seen so has no trouble.

        ``made``: software creates and removes it; only a scan decides whether one that is missing left the bus.
        """
        driver = f"{folder}/driver"
        if os.path.lexists(driver):
            self._seen.add(driver)
        elif driver in self._seen:
            if os.path.lexists(folder):
                return (Condition(Trouble.UNBOUND, "no driver is bound to it"),)
            return (Condition(Trouble.UNBOUND if made else Trouble.LOST, "it is no longer on its bus"),)
        return ()

    def _registers(self, folder: str, device: Watched) -> tuple[Condition, ...]:
        inode = inode_of(folder)
        known = self._known.get(device.address)
        if known is None or known.ends.inode != inode:
            known = self._known[device.address] = self._first_look(folder, inode)
            return self._link(folder, known, speed_counts=device.speed_counts)
        now, at = self._counts(folder, known.counted), self._clock()
        found = aer_troubles(known.counts, now, at - known.at)
        known.counts, known.at = now, at
        return (*found, *self._link(folder, known, speed_counts=device.speed_counts))

    def _first_look(self, folder: str, inode: int) -> _Function:
        above = f"{os.path.realpath(folder)}/.."
        capable = self._capable(folder).lesser(self._capable(above))
        counted = tuple(name for name in _AER if os.path.lexists(f"{folder}/{name}"))
        return _Function(_Ends(inode, capable), self._counts(folder, counted), self._clock(), counted)

    def _counts(self, folder: str, counted: tuple[str, ...]) -> AerCounts:
        found = [aer_total(self._text(f"{folder}/{name}")) if name in counted else None for name in _AER]
        return AerCounts(*found)

    def _capable(self, folder: str) -> PcieLink:
        return pcie_link(self._text(f"{folder}/max_link_width"), self._text(f"{folder}/max_link_speed"))

    def _link(self, folder: str, known: _Function, *, speed_counts: bool) -> tuple[Condition, ...]:
        capable = known.ends.capable
        if capable.lanes is None:
            return ()
        speed = self._text(f"{folder}/current_link_speed") if speed_counts else ""
        current = pcie_link(self._text(f"{folder}/current_link_width"), speed)
        return link_troubles(current, capable, speed_counts=speed_counts)

    def _vanished(self, path: str) -> bool:
        if os.path.lexists(f"{self._dev_root}{path}"):
            self._seen.add(path)
            return False
        return path in self._seen

    def _port(self, name: str, port: int) -> tuple[Condition, ...]:
        folder = f"{self._infiniband}/{name}/ports/{port}"
        state = self._text(f"{folder}/state")
        if not state or state.startswith(_ACTIVE):
            return ()
        physical = self._text(f"{folder}/phys_state").partition(":")[2].strip()
        words = state.partition(":")[2].strip() or state
        detail = f"port {port} of {name} is {words}" + (f" (physically {physical})" if physical else "")
        return (Condition(Trouble.PORT, detail),)

    def _text(self, path: str) -> str:
        try:
            return self._read(path)
        except OSError:
            return ""
