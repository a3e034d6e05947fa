"""What the kernel shows of GPUs in /sys, /dev and /proc.

Works without any driver or library: it tells a GPU whose driver is gone from a GPU that is not there. Three parts, each
read on its own: PCI functions here, device files and the NVIDIA driver's capabilities in the files beside this one.

Invariants: reading never raises; what could not be read is a line in ``errors`` and costs only itself; the result is
sorted by address or path; a function that vanishes while it is read is not there and is no error. Functions that are of
no interest are read once: their class cannot change as long as their directory entry is the same one, which keeps a
rescan of a server with 300 functions at the cost of its 16 GPUs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from node.inventory.device_files import StatDevice, device_files, stat_device
from node.inventory.facts import NodeFacts, PciFunction, SysfsFacts
from node.inventory.nvidia_proc import capabilities, module_version
from node.inventory.small_file import Unreadable, entries, read_text

_CLASS = re.compile(r"0x[0-9a-f]{6}")
_NUMBER = re.compile(r"0x[0-9a-f]+")
_DECIMAL = re.compile(r"-?[0-9]{1,9}")
_DRM = re.compile(r"(?:card|renderD)[0-9]+")
_NVIDIA = "0x10de"
_BASE_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators."""
_NVSWITCH = "0x0680"
"""Bridges of no other subclass; NVIDIA's are NVSwitches."""


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
        self._dull: dict[str, int] = {}

    def read(self) -> NodeFacts:
        """PCI functions of GPUs and NVSwitches, device files, capabilities and the kernel module's version."""
        errors: list[str] = []
        return NodeFacts(
            sysfs=SysfsFacts(
                pci=self._functions(errors),
                device_files=device_files(self._dev_root, self._stat, errors),
                nvidia_capabilities=capabilities(self._proc, errors),
                nvidia_module_version=module_version(self._sys, self._proc, errors),
                errors=tuple(errors),
            )
        )

    def close(self) -> None:
        """Forget what was seen."""
        self._dull = {}

    def _functions(self, errors: list[str]) -> tuple[PciFunction, ...]:
        folder = f"{self._sys}/bus/pci/devices"
        # A kernel without PCI has the bus folder and no pci in it; a missing bus folder means that this is no sysfs.
        found = entries(folder, errors, absent_is_fine=os.path.isdir(f"{self._sys}/bus"))  # noqa: PTH112 - hot path
        dull: dict[str, int] = {}
        functions = []
        for entry in found:
            if self._dull.get(entry.name) == entry.inode():
                dull[entry.name] = entry.inode()
                continue
            reader = _FunctionReader(entry.path, entry.name)
            function = reader.read()
            if not os.path.lexists(entry.path):
                continue
            errors += reader.errors
            if function is not None:
                functions.append(function)
            elif not reader.errors:
                dull[entry.name] = entry.inode()
        self._dull = dull
        return tuple(functions)


class _FunctionReader:
    """Reads one PCI function; ``errors`` names what of it could not be read."""

    def __init__(self, path: str, address: str) -> None:
        self._path = path
        self._address = address
        self.errors: list[str] = []

    def read(self) -> PciFunction | None:
        """The function, None when it is of no interest or its class cannot be told."""
        code = self._number("class", _CLASS)
        if code is None:
            return None
        vendor = None
        if not code.startswith(_BASE_CLASSES):
            if not code.startswith(_NVSWITCH):
                return None
            vendor = self._number("vendor")
            if vendor != _NVIDIA:
                return None
        return PciFunction(
            address=self._address,
            path=self._tree_path(),
            class_code=code,
            vendor=vendor or self._number("vendor") or "",
            device=self._number("device") or "",
            subsystem_vendor=self._number("subsystem_vendor"),
            subsystem_device=self._number("subsystem_device"),
            revision=self._number("revision"),
            numa_node=self._numa_node(),
            driver=self._link("driver"),
            iommu_group=self._link("iommu_group"),
            drm=self._drm(),
        )

    def _text(self, name: str) -> str | None:
        try:
            return read_text(f"{self._path}/{name}")
        except Unreadable as error:
            self.errors.append(str(error))
            return None

    def _number(self, name: str, form: re.Pattern[str] = _NUMBER) -> str | None:
        text = self._text(name)
        if text is None or form.fullmatch(text):
            return text
        self.errors.append(f"{self._path}/{name}: {text[:40]!r} is no hexadecimal number of sysfs")
        return None

    def _numa_node(self) -> int | None:
        # A kernel without NUMA has no such file.
        if not os.path.lexists(f"{self._path}/numa_node"):
            return None
        text = self._text("numa_node")
        if text is None:
            return None
        if _DECIMAL.fullmatch(text):
            return int(text)
        self.errors.append(f"{self._path}/numa_node: {text[:40]!r} is no number")
        return None

    def _tree_path(self) -> str:
        """The path below /sys/devices: the link is read, not resolved, since the bus folder holds links only."""
        try:
            target = os.readlink(self._path)  # noqa: PTH115 - hot path
        except OSError as error:
            self.errors.append(f"{self._path}: {error.strerror}; its place in the PCIe tree is unknown")
            return ""
        path = os.path.normpath(target).lstrip("./")
        if path.startswith("devices/") and path.endswith(f"/{self._address}"):
            return path.removeprefix("devices/")
        _, found, below = path.rpartition("/devices/")
        if found and below.endswith(f"/{self._address}"):
            return below
        self.errors.append(f"{self._path}: link to {target!r}, not to the function's folder below devices")
        return ""

    def _link(self, name: str) -> str | None:
        """Base name of a link's target; a function without driver or IOMMU group has no such link."""
        try:
            return os.path.basename(os.readlink(f"{self._path}/{name}")) or None  # noqa: PTH115, PTH119 - hot path
        except FileNotFoundError:
            return None
        except OSError as error:
            self.errors.append(f"{self._path}/{name}: {error.strerror}")
            return None

    def _drm(self) -> tuple[str, ...]:
        found = entries(f"{self._path}/drm", self.errors, absent_is_fine=True)
        return tuple(sorted(entry.name for entry in found if _DRM.fullmatch(entry.name)))
