"""PCI functions of GPUs, NVSwitches, NICs and RDMA devices, from /sys/bus/pci/devices, and NICs' subfunctions.

A server has hundreds of functions. Most are of no interest, and of the others only a few files change. So a function is
identified once: its class, ids and place cannot change as long as its directory entry is the same one. Every read looks
again only at what a driver or an administrator changes, and an unchanged function is the same value.

A function of an uninteresting class becomes interesting when its driver makes an RDMA device of it (cloud RDMA adapters
have odd classes). The driver may load late, so such functions come from the RDMA devices' paths; the folder
``infiniband`` keeps the function listed while the device itself is in a pod's network namespace.

The auxiliary bus lists every part that a driver splits a device into (``mlx5_core.eth.0``); subfunctions are those of
the kind ``sf``. One is identified once, as long as its directory entry is the same.

Accelerators are functions whose vendor's facts are files that the driver makes, and entries of /sys/class/accel. A file
that a kernel or device lacks is no error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from node.inventory.facts import AcceleratorFacts, DriverText, PciFunction
from node.inventory.net_facts import SubFunction
from node.inventory.nvidia.location import PCI_VENDOR
from node.inventory.pci import ADDRESS, DATA_DIRECT_DEVICE, MELLANOX_VENDOR, is_data_direct
from node.inventory.sysfs.files import DRIVERS, OPTIONAL, Stamp, SysfsFolder, entries, stamp
from node.values import replace

_CLASS = re.compile(r"0x[0-9a-f]{6}")
_DRM = re.compile(r"(?:card|renderD)[0-9]+")
_VFIO = re.compile(r"vfio[0-9]+")
_UIO = re.compile(r"uio[0-9]+")
_VIRTFN = re.compile(r"virtfn[0-9]{1,5}")
_DISPLAY_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators."""
_NETWORK_CLASS = "0x02"
_NVSWITCH = "0x0680"
"""Bridges of no other subclass; NVIDIA's are NVSwitches."""
_NO_ENDPOINTS = ("0x06", "0x01", "0x0807", "0x0880", "0x0c", "0x11", "0x13")
"""Classes of most functions of a server, none of which is a Data Direct function: bridges, storage, what a CPU has."""


def function_of(path: str) -> str | None:
    """Address of the PCI function that a path below /sys/devices leads through last; None if it leads through none."""
    return next((part for part in reversed(path.split("/")) if ADDRESS.fullmatch(part)), None)


class PciFunctions:
    """Reads the functions of interest below ``sys`` and remembers what cannot change."""

    def __init__(self, sys: str) -> None:
        self._sys = sys
        self._folder = f"{sys}/bus/pci/devices"
        self._dull: dict[str, Stamp] = {}
        self._known: dict[str, tuple[Stamp, PciFunction]] = {}

    def read(self, with_rdma: AbstractSet[str | None], errors: list[str]) -> tuple[PciFunction, ...]:
        """The functions by address; ``with_rdma`` are addresses of functions that have an RDMA device now."""
        # A kernel without PCI has the bus folder and no pci in it; a missing bus folder means that this is no sysfs.
        found = entries(self._folder, errors, absent_is_fine=os.path.isdir(f"{self._sys}/bus"))  # noqa: PTH112
        dull: dict[str, Stamp] = {}
        known: dict[str, tuple[Stamp, PciFunction]] = {}
        functions: dict[str, PciFunction] = {}
        for entry in found:
            mark = stamp(entry)
            if mark is None:
                continue
            if self._dull.get(entry.name) == mark and entry.name not in with_rdma:
                dull[entry.name] = mark
                continue
            seen, before = self._known.get(entry.name, (None, None))
            folder = SysfsFolder(entry.path, [])
            function = self._read_one(folder, entry.name, before if seen == mark else None, with_rdma)
            if (function is None or function.numa_node is None) and folder.gone:
                continue
            errors += folder.errors
            if function is not None:
                functions[entry.name] = function
                if not folder.errors:
                    known[entry.name] = (mark, function)
            elif not folder.errors:
                dull[entry.name] = mark
        self._dull, self._known = dull, known
        self._number(functions, errors)
        self._tell_apart(functions)
        return tuple(functions.values())

    def forget(self) -> None:
        """Forget what was seen."""
        self._dull = {}
        self._known = {}

    def _read_one(
        self, folder: SysfsFolder, address: str, before: PciFunction | None, with_rdma: AbstractSet[str | None]
    ) -> PciFunction | None:
        if before is not None and _dull_class(before.class_code, before.vendor, before.device):
            before = before if _has_rdma(folder, address, with_rdma) else None
        function = before or _identify(folder, address, with_rdma)
        return None if function is None else _update(folder, function)

    def _number(self, functions: dict[str, PciFunction], errors: list[str]) -> None:
        """Give virtual functions their index; a physical function is listed only while one of them has none."""
        parents = {each.physfn or "" for each in functions.values() if each.vf_index is None}
        for parent in sorted(parents - {""}):
            folder = SysfsFolder(f"{self._folder}/{parent}", [])
            for link in folder.names("", _VIRTFN):
                function = functions.get(folder.link(link) or "")
                if function is None or function.physfn != parent:
                    continue
                numbered = replace(function, vf_index=int(link.removeprefix("virtfn")))
                functions[function.address] = numbered
                self._keep(numbered)
            errors += folder.errors

    def _tell_apart(self, functions: dict[str, PciFunction]) -> None:
        """Read the UUIDs of NVIDIA's NICs if any of them has a Data Direct function, which has that of its NIC."""
        if not any(is_data_direct(function) for function in functions.values()):
            return
        from node.inventory.sysfs.vpd import vpd_uuid  # Few nodes have such a function.

        for function in tuple(functions.values()):
            if function.vendor == MELLANOX_VENDOR and function.physfn is None and function.vpd_uuid is None:
                identified = replace(function, vpd_uuid=vpd_uuid(f"{self._folder}/{function.address}"))
                functions[function.address] = identified
                self._keep(identified)

    def _keep(self, function: PciFunction) -> None:
        """Remember the function with what was added to it."""
        if function.address in self._known:
            self._known[function.address] = (self._known[function.address][0], function)


def _dull_class(code: str, vendor: str | None, device: str | None) -> bool:
    if vendor == MELLANOX_VENDOR and device == DATA_DIRECT_DEVICE:
        return False
    if code.startswith(_NVSWITCH):
        return vendor != PCI_VENDOR
    return not code.startswith((*_DISPLAY_CLASSES, _NETWORK_CLASS))


def _has_rdma(folder: SysfsFolder, address: str, with_rdma: AbstractSet[str | None]) -> bool:
    return address in with_rdma or os.path.lexists(f"{folder.path}/infiniband")


def _identify(folder: SysfsFolder, address: str, with_rdma: AbstractSet[str | None]) -> PciFunction | None:
    """The constant facts of a function, None if it does not matter or its class is unknown."""
    code = folder.hexadecimal("class", _CLASS)
    if code is None:
        return None
    may_matter = not code.startswith((*_DISPLAY_CLASSES, _NETWORK_CLASS, *_NO_ENDPOINTS))
    vendor = folder.hexadecimal("vendor") if may_matter or code.startswith(_NVSWITCH) else None
    device = folder.hexadecimal("device") if vendor == MELLANOX_VENDOR else None
    if _dull_class(code, vendor, device) and not _has_rdma(folder, address, with_rdma):
        return None
    return PciFunction(
        address=address,
        path=folder.tree_path(address),
        class_code=code,
        vendor=vendor or folder.hexadecimal("vendor") or "",
        device=device or folder.hexadecimal("device") or "",
        subsystem_vendor=folder.hexadecimal("subsystem_vendor"),
        subsystem_device=folder.hexadecimal("subsystem_device"),
        revision=folder.hexadecimal("revision"),
        acpi_index=folder.number("acpi_index", OPTIONAL),
    )


def _update(folder: SysfsFolder, function: PciFunction) -> PciFunction:
    """The function with its current variable facts; the same value if nothing changed."""
    driver = folder.link("driver")
    iommu_group = folder.link("iommu_group")
    drm = folder.names("drm", _DRM) if function.class_code.startswith(_DISPLAY_CLASSES) else ()
    # The link appears a moment after the function does.
    physfn = function.physfn or folder.link("physfn")
    total = enabled = None
    if physfn is None:
        total = folder.number("sriov_totalvfs", OPTIONAL)
        enabled = folder.number("sriov_numvfs", OPTIONAL) if total is not None else None
    group_name = vfio = uio = None
    if driver is not None and "vfio" in driver:
        group_name = folder.text("iommu_group/name", OPTIONAL) if iommu_group is not None else None
        vfio = next(iter(folder.names("vfio-dev", _VFIO)), None)
    elif driver is not None and "uio" in driver:
        uio = next(iter(folder.names("uio", _UIO)), None)
    # A kernel without NUMA has no such file. Last: a function that has it was there all the time.
    numa_node = folder.number("numa_node", OPTIONAL)
    now = (numa_node, driver, iommu_group, drm, physfn, total, enabled, group_name, vfio, uio)
    if now == _changing(function):
        return function
    return replace(
        function,
        numa_node=numa_node,
        driver=driver,
        iommu_group=iommu_group,
        drm=drm,
        physfn=physfn,
        sriov_totalvfs=total,
        sriov_numvfs=enabled,
        iommu_group_name=group_name,
        vfio=vfio,
        uio=uio,
    )


def _changing(function: PciFunction) -> tuple[object, ...]:
    """The fields that ``_update`` reads, in its order."""
    return (
        function.numa_node,
        function.driver,
        function.iommu_group,
        function.drm,
        function.physfn,
        function.sriov_totalvfs,
        function.sriov_numvfs,
        function.iommu_group_name,
        function.vfio,
        function.uio,
    )


_NAME = re.compile(r"[A-Za-z0-9_-]+\.sf\.[0-9]+")


class SubFunctions:
    """Reads the subfunctions below ``sys`` and remembers what cannot change."""

    def __init__(self, sys: str) -> None:
        self._folder = f"{sys}/bus/auxiliary/devices"
        self._known: dict[str, tuple[Stamp, SubFunction]] = {}

    def read(self, errors: list[str]) -> tuple[SubFunction, ...]:
        """The subfunctions by name."""
        known: dict[str, tuple[Stamp, SubFunction]] = {}
        found = []
        for entry in entries(self._folder, errors, absent_is_fine=True):
            mark = stamp(entry) if _NAME.fullmatch(entry.name) else None
            if mark is None:
                continue
            seen, before = self._known.get(entry.name, (None, None))
            folder = SysfsFolder(entry.path, [])
            if before is None or seen != mark:
                path = folder.tree_path(entry.name)
                before = SubFunction(entry.name, path, folder.number("sfnum")) if path else None
            if before is not None:
                driver = folder.link("driver")
                before = before if driver == before.driver else replace(before, driver=driver)
            if folder.gone:
                continue
            errors += folder.errors
            if before is not None:
                found.append(before)
                if not folder.errors:
                    known[entry.name] = (mark, before)
        self._known = known
        return tuple(found)

    def forget(self) -> None:
        """Forget what was seen."""
        self._known = {}


_NODE = re.compile(r"accel(?:_controlD)?[0-9]+")


def accelerators(
    sys: str, functions: Iterable[PciFunction], files: Iterable[str], errors: list[str]
) -> tuple[AcceleratorFacts, ...]:
    """The accelerators that these PCI functions are, with the texts of ``files`` in each one's folder."""
    return tuple(_accelerator(sys, function.address, files, errors) for function in functions)


def _accelerator(sys: str, address: str, files: Iterable[str], errors: list[str]) -> AcceleratorFacts:
    folder = SysfsFolder(f"{sys}/bus/pci/devices/{address}", [])
    nodes = folder.names("accel", _NODE)
    found = ((name, folder.text(name, DRIVERS)) for name in files)
    texts = tuple(DriverText(name, text) for name, text in found if text)
    # What failed on a function that was pulled out while it was read is no error.
    if folder.errors and not folder.gone:
        errors += folder.errors
    return AcceleratorFacts(address, nodes, texts)
