"""AMD: Instinct and Radeon GPUs under amdgpu, their compute partitions, and what sysfs shows of them.

The facts come from amdgpu and from KFD, the kernel's compute driver. Reading never raises. A file that this GPU or
kernel lacks is normal; a file that cannot be read is a line in ``errors``; a GPU that vanishes meanwhile is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from node.inventory.amd.devices import DRIVER, PCI_VENDOR, VENDOR, address_of, amd_devices
from node.inventory.amd.facts import AmdGpu, AmdPartition, KfdLink, KfdNode
from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.model import Device, DeviceKind
from node.inventory.sysfs.files import Unreadable, entries, read_text
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


_DRM = r"(?:card|renderD)[0-9]+"
_PARTITION = r"amdgpu_xcp_?[0-9]+"
_NUMBER = r"[0-9]{1,20}"
_BYTES = r"[0-9]{1,18}"


def amd_gpus(sys: str, functions: Iterable[PciFunction], errors: list[str]) -> tuple[AmdGpu, ...]:
    """What amdgpu shows of the functions that it drives, in their order."""
    return tuple(
        _gpu(f"{sys}/bus/pci/devices/{function.address}", function.address, errors)
        for function in functions
        if function.vendor == PCI_VENDOR and function.driver == DRIVER
    )


def amd_partitions(sys: str, errors: list[str]) -> tuple[AmdPartition, ...]:
    """The platform devices of further partitions, by name."""
    found = entries(f"{sys}/devices/platform", [], absent_is_fine=True)
    return tuple(
        AmdPartition(entry.name, _drm(f"{entry.path}/drm", errors))
        for entry in found
        if re.fullmatch(_PARTITION, entry.name)
    )


def kfd_nodes(sys: str, errors: list[str]) -> tuple[KfdNode, ...]:
    """GPUs and partitions as nodes of KFD's topology, by number; none without KFD."""
    folder = f"{sys}/class/kfd/kfd/topology/nodes"
    found = [entry.name for entry in entries(folder, errors, absent_is_fine=True) if re.fullmatch(_NUMBER, entry.name)]
    nodes = (_node(f"{folder}/{name}", int(name), errors) for name in sorted(found, key=int))
    return tuple(node for node in nodes if node is not None)


def _gpu(path: str, address: str, errors: list[str]) -> AmdGpu:
    vram = _text(f"{path}/mem_info_vram_total", errors)
    return AmdGpu(
        address,
        product_name=_text(f"{path}/product_name", errors),
        unique_id=_text(f"{path}/unique_id", errors),
        serial=_text(f"{path}/serial_number", errors),
        vram_bytes=int(vram) if vram is not None and re.fullmatch(_BYTES, vram) else None,
        vbios_version=_text(f"{path}/vbios_version", errors),
        compute_partition=_text(f"{path}/current_compute_partition", errors),
        memory_partition=_text(f"{path}/current_memory_partition", errors),
    )


def _drm(folder: str, errors: list[str]) -> tuple[str, ...]:
    found = entries(folder, errors, absent_is_fine=True)
    return tuple(entry.name for entry in found if re.fullmatch(_DRM, entry.name))


def _node(path: str, number: int, errors: list[str]) -> KfdNode | None:
    """The node; None for a CPU, whose gpu_id is 0, and for one that is gone."""
    gpu_id = _text(f"{path}/gpu_id", errors)
    if gpu_id is None or not re.fullmatch(_NUMBER, gpu_id) or int(gpu_id) == 0:
        return None
    facts = _properties(f"{path}/properties", errors)
    if not {"location_id", "drm_render_minor"} <= facts.keys():
        if facts:
            errors.append(f"{path}/properties: neither location_id nor drm_render_minor may be missing")
        return None
    return KfdNode(
        number,
        gpu_id=int(gpu_id),
        domain=facts.get("domain", 0),
        location_id=facts["location_id"],
        render_minor=facts["drm_render_minor"],
        gfx_target_version=facts.get("gfx_target_version"),
        unique_id=facts.get("unique_id"),
        simd_count=facts.get("simd_count"),
        xcc_count=facts.get("num_xcc"),
        links=tuple(_links(path, errors)),
    )


def _links(path: str, errors: list[str]) -> Iterator[KfdLink]:
    folder = f"{path}/io_links"
    for entry in entries(folder, errors, absent_is_fine=True):
        facts = _properties(f"{entry.path}/properties", errors)
        if {"node_to", "type"} <= facts.keys():
            yield KfdLink(facts["node_to"], facts["type"], facts.get("weight"))


def _properties(path: str, errors: list[str]) -> dict[str, int]:
    """Lines of name and number; a line that is something else is not used."""
    text = _text(path, errors) or ""
    words = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and re.fullmatch(_NUMBER, pair[1])}


def _text(path: str, errors: list[str]) -> str | None:
    """The file's text; None where it is not there or empty, which older kernels and other GPUs make normal."""
    if not os.path.lexists(path):
        return None
    try:
        return read_text(path) or None
    except Unreadable as error:
        if os.path.lexists(path):
            errors.append(str(error))
        return None


AMD = Vendor(
    name=VENDOR,
    title="AMD",
    pci_vendor=PCI_VENDOR,
    drivers=(DRIVER,),
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
