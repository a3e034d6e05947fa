"""Hand-made facts: a node with H100s behind two sockets, and A100s split by MIG."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.devices import devices_of
from node.inventory.facts import (
    CapabilityFile,
    DeviceFile,
    GpuFacts,
    MigFacts,
    NodeFacts,
    NvmlFacts,
    PciFunction,
    SysfsFacts,
)
from node.inventory.identity import Identities
from node.inventory.model import Device

GIB = 1 << 30


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-1111-2222-3333-444444444444"


def gpu(index: int, **changes: object) -> GpuFacts:
    """An H100 at bus 1b, 2b, 3b, ..."""
    made = GpuFacts(
        index=index,
        bus_id=f"00000000:{index + 1:X}B:00.0",
        uuid=uuid(index),
        name="NVIDIA H100 80GB HBM3",
        minor=index,
        serial=f"165432100000{index}",
        brand=14,
        architecture=9,
        compute_capability="9.0",
        memory_bytes=85520809984,
        module_id=index + 1,
        virtualization_mode=0,
        ecc_mode=1,
        mig_mode=0,
        mig_pending=0,
        mig_max_devices=7,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def mig(index: int, start: int, size: int = 1, **changes: object) -> MigFacts:
    """A 1g.5gb of an A100 with 40 GB."""
    made = MigFacts(
        index=index,
        uuid=f"MIG-0000000{index}-aaaa-bbbb-cccc-dddddddddddd",
        name="NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        gpu_instance=index + 7,
        compute_instance=0,
        gpu_instance_profile=19,
        placement_start=start,
        placement_size=size,
        multiprocessors=14,
        copy_engines=1,
        decoders=0,
        encoders=0,
        jpeg_engines=0,
        ofa_engines=0,
        gpu_slices=1,
        compute_slices=1,
        memory_mib=4864,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a100(index: int, *instances: MigFacts, **changes: object) -> GpuFacts:
    """An A100 in MIG mode with these instances."""
    changes = {"name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 40 * GIB, **changes}
    return gpu(
        index, mig_mode=1, mig_pending=1, architecture=7, compute_capability="8.0", **changes, mig_devices=instances
    )


def function(index: int, **changes: object) -> PciFunction:
    """The PCI function of ``gpu(index)``."""
    bus = f"{index + 1:x}"
    made = PciFunction(
        address=f"0000:{bus}b:00.0",
        path=f"pci0000:{bus}5/0000:{bus}5:01.0/0000:{bus}b:00.0",
        class_code="0x030200",
        vendor="0x10de",
        device="0x2330",
        numa_node=index // 2,
        driver="nvidia",
        iommu_group=str(40 + index),
        drm=(f"card{index}", f"renderD{128 + index}"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def files(*paths: str) -> tuple[DeviceFile, ...]:
    return tuple(DeviceFile(path, "c", 195, number) for number, path in enumerate(paths))


CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def sysfs(count: int, *extra: str, **changes: object) -> SysfsFacts:
    paths = [f"/dev/nvidia{index}" for index in range(count)]
    paths += [f"/dev/dri/renderD{128 + index}" for index in range(count)]
    made = SysfsFacts(
        pci=tuple(function(index) for index in range(count)),
        device_files=files(*paths, *CONTROL, *extra),
        nvidia_capabilities=(
            CapabilityFile("gpu0/mig/gi7/access", 66),
            CapabilityFile("gpu0/mig/gi7/ci0/access", 67),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def nvml(*gpus: GpuFacts, **changes: object) -> NvmlFacts:
    made = NvmlFacts(driver_version="550.107.02", cuda_driver_version=12040, gpus=gpus)
    return replace(made, **changes)  # type: ignore[arg-type]


def node(*gpus: GpuFacts, on_bus: int | None = None, **changes: object) -> NodeFacts:
    """A node with these GPUs and as many functions on the PCI bus, or ``on_bus``."""
    return NodeFacts(nvml=nvml(*gpus), sysfs=sysfs(len(gpus) if on_bus is None else on_bus, **changes))


def devices(facts: NodeFacts, remembered: Identities | None = None) -> dict[str, Device]:
    return {device.name: device for device in devices_of(facts, remembered or Identities())}
