"""NVIDIA. MIG strategies, NVML and the edits of its container runtime have code of their own; the facts are here."""

from __future__ import annotations

from node.inventory.facts import SysfsFacts
from node.inventory.model import Device, DeviceKind
from node.inventory.nvidia.devices import VENDOR, nvidia_devices
from node.inventory.nvidia.location import PCI_VENDOR
from node.inventory.nvidia.proc import capabilities, module_version
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
    modules="nvidia.*|gdrdrv",
    link=("NVLink", "NV"),
)
