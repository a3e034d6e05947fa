"""What the kernel shows of GPUs, NICs and RDMA devices in /sys, /dev and /proc.

Works without any driver or library: it distinguishes a device without a driver from a missing device. Every part of the
facts has a reader in a file of its own, beside this one; what a reader remembers is only how to read less the next
time, and a source that has just been made reads the same facts.

Invariants: reading never raises; what could not be read is a line in ``errors`` and costs only itself; the result is
sorted by address, name or path; a device that vanishes while it is read is not there and is no error.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

from node.inventory.facts import DeviceFile, NodeFacts, SysfsFacts
from node.inventory.sysfs.device_files import (
    DEVICE_FOLDERS,
    PARTITION_FOLDERS,
    DeviceFolders,
    StatDevice,
    device_files,
    stat_device,
)
from node.inventory.sysfs.net_interfaces import NetInterfaces
from node.inventory.sysfs.pci_functions import PciFunctions, SubFunctions, function_of
from node.inventory.sysfs.rdma_devices import RdmaDevices, rdma_exclusive
from node.inventory.vendor import Vendor
from node.inventory.vendors import VENDORS
from node.values import replace


class SysfsSource:
    """Source of ``NodeFacts.sysfs``.

    ``sys``, ``dev_root`` and ``proc``: where /sys is, what /dev is in, and where /proc is. ``stat``: how device numbers
    are read; a test without root rights cannot make device files.
    """

    name = "sysfs"

    def __init__(
        self,
        sys: Path = Path("/sys"),
        dev_root: Path = Path("/"),
        proc: Path = Path("/proc"),
        stat: StatDevice = stat_device,
    ) -> None:
        self._sys = str(sys)
        self._dev_root = str(dev_root)
        self._proc = str(proc)
        self._stat = stat
        self._functions = PciFunctions(self._sys)
        self._interfaces = NetInterfaces(self._sys)
        self._rdma = RdmaDevices(self._sys)
        self._subfunctions = SubFunctions(self._sys)
        self._bus: SysfsFacts | None = None
        """The last read of PCI functions and of what is below them."""
        self._last: SysfsFacts | None = None
        """The last facts, if nothing failed."""

    def read(self) -> NodeFacts:
        """PCI functions and what is below them, device files, and the facts of each vendor's drivers."""
        self._bus = self._read_bus()
        return self._completed(self._bus)

    def read_gpus(self, _: frozenset[str]) -> NodeFacts:
        """See ``GpuReader``: with partitions only their own device files and the facts of their vendors change."""
        if self._bus is None:
            return self.read()
        return self._completed(self._bus) if self._last is None else self._parted(self._last)

    def _read_bus(self) -> SysfsFacts:
        errors: list[str] = []
        rdma = self._rdma.read(errors)
        pci = self._functions.read({function_of(device.path) for device in rdma}, errors)
        facts = SysfsFacts(
            pci=pci,
            interfaces=self._interfaces.read(errors),
            rdma=rdma,
            subfunctions=self._subfunctions.read(errors),
            rdma_exclusive=rdma_exclusive(self._sys, errors) if rdma else None,
        )
        return replace(facts, errors=tuple(errors))

    def _completed(self, bus: SysfsFacts) -> NodeFacts:
        errors = list(bus.errors)
        sysfs = replace(bus, device_files=self._files(DEVICE_FOLDERS, errors))
        return self._with_vendors(VENDORS, sysfs, errors)

    def _parted(self, last: SysfsFacts) -> NodeFacts:
        errors: list[str] = []
        folders = tuple(f"/{folder}/" for folder, _ in PARTITION_FOLDERS)
        kept = [file for file in last.device_files if not file.path.startswith(folders)]
        files = sorted((*kept, *self._files(PARTITION_FOLDERS, errors)), key=attrgetter("path"))
        vendors = [vendor for vendor in VENDORS if vendor.partition_files]
        return self._with_vendors(vendors, replace(last, device_files=tuple(files)), errors)

    def _files(self, folders: DeviceFolders, errors: list[str]) -> tuple[DeviceFile, ...]:
        return device_files(self._dev_root, self._stat, errors, folders)

    def _with_vendors(self, vendors: Iterable[Vendor], sysfs: SysfsFacts, errors: list[str]) -> NodeFacts:
        for vendor in vendors:
            sysfs = vendor.read_sysfs(sysfs, self._sys, self._proc, errors)
        sysfs = replace(sysfs, errors=tuple(errors))
        self._last = None if errors else sysfs
        return NodeFacts(sysfs=sysfs)

    def close(self) -> None:
        """Forget what was read."""
        self._bus = self._last = None
        for reader in (self._functions, self._interfaces, self._rdma, self._subfunctions):
            reader.forget()
