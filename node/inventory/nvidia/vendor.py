"""NVIDIA as a vendor, and what its kernel module says of itself: capability files of MIG instances, and its version.

MIG strategies, NVML, and the edits of its container runtime have code of their own.
"""

from __future__ import annotations

import re
from operator import attrgetter

from node.inventory.facts import CapabilityFile, SysfsFacts
from node.inventory.model import Device, DeviceKind
from node.inventory.nvidia.devices import VENDOR, nvidia_devices
from node.inventory.nvidia.location import PCI_VENDOR
from node.inventory.sysfs.files import Unreadable, entries, read_text
from node.inventory.vendor import Family, Vendor, VendorResource
from node.values import replace

DRA_DRIVER = "gpu.nvidia.com"


def _read_sysfs(sysfs: SysfsFacts, sys: str, proc: str, errors: list[str]) -> SysfsFacts:
    return replace(
        sysfs,
        nvidia_capabilities=capabilities(proc, errors),
        nvidia_module_version=module_version(sys, proc, errors),
    )


def _id_of(device: Device) -> str | None:
    return device.uuid


NVIDIA = Vendor(
    name=VENDOR,
    title="NVIDIA",
    pci_vendor=PCI_VENDOR,
    drivers=("nvidia",),
    devices=nvidia_devices,
    resources=(
        VendorResource("nvidia.com/gpu"),
        VendorResource("nvidia.com/mig-{profile}", (DeviceKind.MIG,)),
    ),
    dra_driver=DRA_DRIVER,
    cdi_class="gpu",
    id_of=_id_of,
    family=Family.NVIDIA,
    source="nvml",
    read_sysfs=_read_sysfs,
    device_files=(("dev", "nvidia.*|gdrdrv"), ("dev/nvidia-caps", ".+"), ("dev/nvidia-caps-imex-channels", ".+")),
    partition_files="dev/nvidia-caps",
    modules="nvidia.*|gdrdrv",
    link=("NVLink", "NV"),
)


_ACCESS = "access"
_MINOR = re.compile(r"^DeviceFileMinor:[ \t]*([0-9]{1,9})[ \t]*$", re.MULTILINE)
_BANNER = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9]+(?:\.[0-9]+)+)")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_DEPTH = 8
"""Folders below capabilities: gpu0/mig/gi1/ci0 has four; the bound keeps a strange tree from going on for ever."""


def capabilities(proc: str, errors: list[str]) -> tuple[CapabilityFile, ...]:
    """Access files below the driver's capabilities, by their path below that folder, sorted.

    The number is that of the device file /dev/nvidia-caps/nvidia-cap<minor>, whether that exists or not.
    """
    base = f"{proc}/driver/nvidia/capabilities"
    found = []
    folders = [(base, 0)]
    while folders:
        folder, depth = folders.pop()
        # An instance that is destroyed while this reads takes its folder with it.
        for entry in entries(folder, errors, absent_is_fine=True):
            if entry.is_dir(follow_symlinks=False) and depth < _DEPTH:
                folders.append((entry.path, depth + 1))
            elif entry.name == _ACCESS:
                minor = _access_minor(entry.path, errors)
                if minor is not None:
                    found.append(CapabilityFile(entry.path[len(base) + 1 :], minor))
    return tuple(sorted(found, key=attrgetter("path")))


def module_version(sys: str, proc: str, errors: list[str]) -> str | None:
    """Version of the loaded kernel module, None when it is not loaded."""
    refused: list[str] = []
    for path, form in ((f"{sys}/module/nvidia/version", _VERSION), (f"{proc}/driver/nvidia/version", _BANNER)):
        try:
            text = read_text(path)
        except Unreadable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                refused.append(str(error))
            continue
        match = form.search(text)
        if match is not None:
            return match.group(match.lastindex or 0)
        refused.append(f"{path}: no version in {text[:60]!r}")
    errors += refused
    return None


def _access_minor(path: str, errors: list[str]) -> int | None:
    try:
        text = read_text(path)
    except Unreadable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            errors.append(str(error))
        return None
    match = _MINOR.search(text)
    if match is None:
        errors.append(f"{path}: no DeviceFileMinor in {text[:60]!r}")
        return None
    return int(match.group(1))


GPU_RESOURCE, MIG_RESOURCE = (resource.name for resource in NVIDIA.resources)
"""Resource names of NVIDIA's device plugin: of GPUs, and of MIG devices by their profile."""
