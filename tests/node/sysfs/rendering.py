"""Real directory trees made out of facts: what the sources of a recorded node's /sys, /dev and /proc would read.

The inverse of ``SysfsSource``: reading a rendered tree gives the facts again, with lists in the source's order (see
``ordered``). What no facts can say is left out: where a driver declines to answer, there is no file, and errors are not
rendered. Whoever changes an interface's speed in such a tree changes ``carrier_changes`` as well, as the kernel does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from node.inventory.amd.facts import AmdGpu, KfdNode
from node.inventory.facts import AcceleratorFacts, DeviceFile, PciFunction, SysfsFacts
from node.inventory.net_facts import NetInterface, RdmaDevice, SubFunction
from node.inventory.sysfs.source import SysfsSource

Item = TypeVar("Item")
MakeDevice = Callable[[Path, DeviceFile], None]
"""Puts a device file at the path; its folder exists. Raises OSError."""

_BUS = "bus/pci/devices"
_VERBS = "uverbs"


def render(facts: SysfsFacts, root: Path, make_device: MakeDevice | None = None) -> None:
    """Make ``root``/sys, ``root``/host/dev and ``root``/proc; what is there already stays.

    ``make_device``: real device files (``mknod_device``) need root rights; without it plain files take their places,
    whose numbers ``Numbers`` knows. Raises OSError.
    """
    sys = root / "sys"
    for folder in (sys / "devices", sys / _BUS, sys / "class/net", root / "host/dev", root / "proc/driver"):
        folder.mkdir(parents=True, exist_ok=True)
    for function in facts.pci:
        _function(sys, function)
    _virtual_functions(sys, facts.pci)
    for interface in facts.interfaces:
        _interface(sys, interface)
    for device in facts.rdma:
        _rdma_device(sys, device)
    for each in facts.subfunctions:
        _subfunction(sys, each)
    for gpu in facts.amd_gpus:
        _amd_gpu(sys, gpu)
    for accelerator in facts.accelerators:
        _accelerator(sys, accelerator)
    for partition in facts.amd_partitions:
        for name in partition.drm:
            (sys / "devices/platform" / partition.name / "drm" / name).mkdir(parents=True)
    for node in facts.kfd:
        _kfd_node(sys, node)
    _nvidia(root / "proc/driver/nvidia", facts)
    for file in facts.device_files:
        path = root / "host" / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        (make_device or _plain_file)(path, file)


def source(facts: SysfsFacts, root: Path) -> SysfsSource:
    """A source that reads the tree, with the numbers of its plain files from the facts."""
    return SysfsSource(root / "sys", root / "host", root / "proc", Numbers(facts, root))


def mknod_device(path: Path, file: DeviceFile) -> None:
    """A real device file without rights for anybody: only that it is there is looked at. Needs root rights."""
    kind = stat.S_IFBLK if file.kind == "b" else stat.S_IFCHR
    os.mknod(path, kind, os.makedev(file.major, file.minor))


class Numbers:
    """Device numbers of a rendered tree's plain files; a ``StatDevice``."""

    def __init__(self, facts: SysfsFacts, root: Path) -> None:
        self._files = {f"{root}/host{file.path}": (file.kind, file.major, file.minor) for file in facts.device_files}

    def __call__(self, path: str) -> tuple[str, int, int] | None:
        os.lstat(path)
        return self._files.get(path)


def ordered(facts: SysfsFacts) -> SysfsFacts:
    """The same facts in the order in which a source reads them, and without errors."""
    return replace(
        facts,
        pci=_by(facts.pci, lambda each: each.address),
        device_files=_by(facts.device_files, lambda each: each.path),
        nvidia_capabilities=_by(facts.nvidia_capabilities, lambda each: each.path),
        interfaces=_by(facts.interfaces, lambda each: each.name),
        rdma=_by(map(_ordered_device, facts.rdma), lambda each: each.name),
        subfunctions=_by(facts.subfunctions, lambda each: each.name),
        amd_gpus=_by(facts.amd_gpus, lambda each: each.address),
        amd_partitions=_by(facts.amd_partitions, lambda each: each.name),
        accelerators=_by(facts.accelerators, lambda each: each.address),
        kfd=tuple(sorted(facts.kfd, key=lambda each: each.node)),
        errors=(),
    )


def _ordered_device(device: RdmaDevice) -> RdmaDevice:
    ports = tuple(sorted(device.ports, key=lambda each: each.port))
    return replace(device, ports=ports, files=_by(device.files, lambda each: each.name))


def _by(items: Iterable[Item], key: Callable[[Item], str]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=key))


def _function(sys: Path, function: PciFunction) -> None:
    folder = sys / "devices" / function.path
    _write(
        folder,
        {
            "class": function.class_code,
            "vendor": function.vendor,
            "device": function.device,
            "subsystem_vendor": function.subsystem_vendor,
            "subsystem_device": function.subsystem_device,
            "revision": function.revision,
            "numa_node": function.numa_node,
            "sriov_totalvfs": function.sriov_totalvfs,
            "sriov_numvfs": function.sriov_numvfs,
            "acpi_index": function.acpi_index,
        },
    )
    if function.driver is not None:
        link(folder / "driver", sys / "bus/pci/drivers" / function.driver)
    if function.iommu_group is not None:
        group = sys / "kernel/iommu_groups" / function.iommu_group
        link(folder / "iommu_group", group)
        _write(group, {"name": function.iommu_group_name})
    for below, names in (("drm", function.drm), ("vfio-dev", (function.vfio,)), ("uio", (function.uio,))):
        for name in names:
            if name is not None:
                (folder / below / name).mkdir(parents=True)
    link(sys / _BUS / function.address, folder)


def _virtual_functions(sys: Path, functions: tuple[PciFunction, ...]) -> None:
    """Links between virtual and physical functions; a physical one that is not among the facts is elsewhere."""
    folders = {function.address: sys / "devices" / function.path for function in functions}
    for function in functions:
        if function.physfn is None:
            continue
        parent = folders.get(function.physfn, sys / "devices/elsewhere" / function.physfn)
        link(folders[function.address] / "physfn", parent)
        if function.vf_index is not None:
            link(parent / f"virtfn{function.vf_index}", folders[function.address])


def _interface(sys: Path, interface: NetInterface) -> None:
    folder = sys / "devices" / interface.path
    _write(
        folder,
        {
            "ifindex": interface.ifindex,
            "type": interface.link_type,
            "address": interface.address,
            "mtu": interface.mtu,
            "operstate": interface.operstate,
            "carrier": None if interface.carrier is None else int(interface.carrier),
            "carrier_changes": 1,
            "speed": interface.speed_mbps,
            "dev_port": interface.dev_port,
            "phys_port_name": interface.port_name,
            "phys_switch_id": interface.switch_id,
        },
    )
    link(sys / "class/net" / interface.name, folder)


def _rdma_device(sys: Path, device: RdmaDevice) -> None:
    folder = sys / "devices" / device.path
    _write(
        folder,
        {
            "node_type": device.node_type,
            "node_guid": device.node_guid,
            "sys_image_guid": device.system_guid,
            "fw_ver": device.firmware_version,
            "board_id": device.board_id,
            "hca_type": device.hca_type,
        },
    )
    for port in device.ports:
        _write(
            folder / "ports" / str(port.port),
            {
                "state": port.state,
                "phys_state": port.physical_state,
                "link_layer": port.link_layer,
                "rate": port.rate,
                "gid_attrs/ndevs/0": port.interface,
                "pkeys/0": port.pkey,
            },
        )
    link(sys / "class/infiniband" / device.name, folder)
    for file in device.files:
        kind = "infiniband_verbs" if file.name.startswith(_VERBS) else "infiniband_mad"
        below = folder.parent.parent / kind / file.name
        _write(below, {"ibdev": device.name, "dev": f"{file.major}:{file.minor}"})
        link(sys / "class" / kind / file.name, below)


def _subfunction(sys: Path, each: SubFunction) -> None:
    folder = sys / "devices" / each.path
    _write(folder, {"sfnum": each.sfnum})
    if each.driver is not None:
        link(folder / "driver", sys / "bus/auxiliary/drivers" / each.driver)
    link(sys / "bus/auxiliary/devices" / each.name, folder)


def _amd_gpu(sys: Path, gpu: AmdGpu) -> None:
    _write(
        (sys / _BUS / gpu.address).resolve(),
        {
            "product_name": gpu.product_name,
            "unique_id": gpu.unique_id,
            "serial_number": gpu.serial,
            "mem_info_vram_total": gpu.vram_bytes,
            "vbios_version": gpu.vbios_version,
            "current_compute_partition": gpu.compute_partition,
            "current_memory_partition": gpu.memory_partition,
        },
    )


def _accelerator(sys: Path, each: AcceleratorFacts) -> None:
    folder = (sys / _BUS / each.address).resolve()
    _write(folder, {one.name: one.text for one in each.texts})
    for name in each.nodes:
        (folder / "accel" / name).mkdir(parents=True)


def _kfd_node(sys: Path, node: KfdNode) -> None:
    folder = sys / "class/kfd/kfd/topology/nodes" / str(node.node)
    properties = {
        "domain": node.domain,
        "location_id": node.location_id,
        "drm_render_minor": node.render_minor,
        "gfx_target_version": node.gfx_target_version,
        "unique_id": node.unique_id,
        "simd_count": node.simd_count,
        "num_xcc": node.xcc_count,
    }
    _write(folder, {"gpu_id": node.gpu_id, "properties": _lines(properties)})
    for index, each in enumerate(node.links):
        properties = {"type": each.type, "node_to": each.to, "weight": each.weight}
        _write(folder / "io_links" / f"{index:04}", {"properties": _lines(properties)})


def _nvidia(folder: Path, facts: SysfsFacts) -> None:
    version = facts.nvidia_module_version
    if version is not None:
        _write(folder, {"version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}"})
    for capability in facts.nvidia_capabilities:
        _write(folder / "capabilities", {capability.path: f"DeviceFileMinor: {capability.minor}\nDeviceFileMode: 292"})


def _lines(properties: dict[str, int | None]) -> str:
    return "\n".join(f"{name} {number}" for name, number in properties.items() if number is not None)


def _write(folder: Path, texts: dict[str, str | int | None]) -> None:
    """Attributes in a folder, each with the newline that the kernel ends it with; None is no file."""
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - a large node has ten thousand files
    for name, text in texts.items():
        if text is None:
            continue
        path = f"{folder}/{name}"
        if "/" in name:
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{text}\n")


def _plain_file(path: Path, _: DeviceFile) -> None:
    path.touch()


def link(path: Path, target: Path) -> None:
    """A relative link as the kernel makes it, to a folder that is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))
