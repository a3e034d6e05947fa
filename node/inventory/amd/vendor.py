"""AMD: Instinct and Radeon GPUs under amdgpu, and their compute partitions."""

from __future__ import annotations

from node.inventory.amd.devices import VENDOR, address_of, amd_devices
from node.inventory.amd.sysfs import PCI_VENDOR, amd_gpus, amd_partitions, kfd_nodes
from node.inventory.facts import SysfsFacts
from node.inventory.model import Device, DeviceKind
from node.inventory.vendor import DriverCheck, Vendor, VendorResource
from node.values import replace


def _read_sysfs(sysfs: SysfsFacts, sys: str, _: str, errors: list[str]) -> SysfsFacts:
    return replace(
        sysfs,
        amd_gpus=amd_gpus(sys, sysfs.pci, errors),
        amd_partitions=amd_partitions(sys, errors),
        kfd=kfd_nodes(sys, errors),
    )


def _without_absent(sysfs: SysfsFacts, addresses: frozenset[str]) -> SysfsFacts:
    """Without the compute nodes and partitions of GPUs that are gone, and without links to them."""
    gone = {node.node: f"renderD{node.render_minor}" for node in sysfs.kfd if address_of(node) not in addresses}
    return replace(
        sysfs,
        amd_gpus=tuple(gpu for gpu in sysfs.amd_gpus if gpu.address in addresses),
        amd_partitions=tuple(each for each in sysfs.amd_partitions if not set(each.drm) & set(gone.values())),
        kfd=tuple(
            replace(node, links=tuple(link for link in node.links if link.to not in gone))
            for node in sysfs.kfd
            if node.node not in gone
        ),
    )


def _id_of(device: Device) -> str | None:
    """The PCI address; of a further partition its platform device (``amdgpu_xcp_1``)."""
    return device.text("platformDevice") if device.kind is DeviceKind.PARTITION else device.pci_address


AMD = Vendor(
    name=VENDOR,
    title="AMD",
    pci_vendor=PCI_VENDOR,
    drivers=("amdgpu",),
    devices=lambda facts, _: amd_devices(facts),
    resources=(VendorResource("amd.com/gpu", (DeviceKind.GPU, DeviceKind.PARTITION)),),
    dra_driver="gpu.amd.com",
    cdi_class="amd-gpu",
    id_of=_id_of,
    read_sysfs=_read_sysfs,
    without_absent=_without_absent,
    device_files=(("dev", "kfd"),),
    modules="amdgpu",
    subsystems=("kfd",),
    link=("XGMI", "XG"),
    check=DriverCheck(
        node="renderD",
        node_name="render node",
        control="/dev/kfd",
        without_control=("ROCm finds no GPU", "see 'dmesg' for kfd; the kernel needs HSA_AMD, and the pod /dev"),
    ),
)
