"""Facts of nodes as NVML tells them, to be served by the stub."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.facts import Ancestor, CallError, Fabric, GpuFacts, MigFacts, NvLink, NvmlFacts, SramErrors

WELL_FABRIC = 0x11AA
"""A health mask: full bandwidth, routes well, nothing recovers, configured rightly, with a partition."""
UNSUPPORTED = "NOT_SUPPORTED"
GIB = 2**30


def hgx() -> NvmlFacts:
    """Eight H100 on NVSwitches, one link of one GPU down, in a fabric."""
    gpus = tuple(_h100(index) for index in range(8))
    first = replace(gpus[0], nvlinks=(*gpus[0].nvlinks[:17], NvLink(17, active=False)))
    return NvmlFacts(
        driver_version="550.107.02",
        nvml_version="12.550.107.02",
        cuda_driver_version=12040,
        gpus=(first, *gpus[1:]),
    )


def _h100(index: int) -> GpuFacts:
    return GpuFacts(
        index=index,
        bus_id=f"00000000:{0x1B + index * 0x10:02X}:00.0",
        uuid=f"GPU-{index:08x}-0000-4000-8000-000000000001",
        name="NVIDIA H100 80GB HBM3",
        minor=index,
        serial=f"16500230{index:05d}",
        brand=14,
        architecture=9,
        compute_capability="9.0",
        memory_bytes=80 * GIB,
        module_id=8 - index,
        addressing_mode="HMM",
        virtualization_mode=0,
        ecc_mode=1,
        vbios_version="96.00.89.00.01",
        board_part_number="692-2G520-0200-000",
        remapped_rows_pending=False,
        remapped_rows_failed=index == 5,
        mig_mode=0,
        mig_pending=0,
        mig_max_devices=0,
        fabric=Fabric("c0ffee00-0011-4233-8455-66778899aabb", 7, 3, 0, WELL_FABRIC, 1),
        sram=SramErrors(1, 2, threshold_exceeded=False),
        nvlinks=tuple(
            NvLink(link, active=True, remote_type="switch", remote_bus_id=f"00000000:{link % 4 + 5:02X}:00.0")
            for link in range(18)
        ),
        ancestors=tuple(
            Ancestor(other, 40 if other // 4 == index // 4 else 50) for other in range(8) if other != index
        ),
    )


def bridged() -> NvmlFacts:
    """Two GPUs with direct links to each other, on one switch, without fabric or MIG."""
    unsupported = tuple(
        CallError(call, UNSUPPORTED)
        for call in ("nvmlDeviceGetAddressingMode", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMigMode")
    )
    none = {"mig_mode": None, "mig_pending": None, "mig_max_devices": None, "fabric": None, "addressing_mode": None}
    gpus = [replace(_h100(index), **none, errors=unsupported) for index in range(2)]  # type: ignore[arg-type]
    return NvmlFacts(
        driver_version="470.82.01",
        nvml_version="11.470.82.01",
        cuda_driver_version=11040,
        gpus=tuple(
            replace(
                gpu,
                nvlinks=tuple(NvLink(link, True, "gpu", gpus[1 - gpu.index].bus_id) for link in range(4)),
                ancestors=(Ancestor(1 - gpu.index, 10),),
            )
            for gpu in gpus
        ),
    )


def partitioned() -> NvmlFacts:
    """An A100 with three MIG devices and holes between them, and one GPU without MIG."""
    whole = replace(
        _h100(0),
        name="NVIDIA A100-SXM4-40GB",
        compute_capability="8.0",
        memory_bytes=40 * GIB,
        mig_mode=1,
        mig_pending=1,
        mig_max_devices=7,
        ancestors=(Ancestor(1, 50),),
        mig_devices=(
            _mig(0, gpu_instance=1, compute_instance=0, profile=9, start=4, size=4, slices=3, compute=3),
            _mig(1, gpu_instance=5, compute_instance=0, profile=14, start=0, size=2, slices=2, compute=1),
            _mig(4, gpu_instance=5, compute_instance=1, profile=14, start=0, size=2, slices=2, compute=1),
        ),
    )
    plain = replace(_h100(1), mig_pending=1, ancestors=(Ancestor(0, 50),))
    return NvmlFacts(
        driver_version="535.104.05", nvml_version="12.535.104.05", cuda_driver_version=12020, gpus=(whole, plain)
    )


def _mig(
    index: int,
    *,
    gpu_instance: int,
    compute_instance: int,
    profile: int,
    start: int,
    size: int,
    slices: int,
    compute: int,
) -> MigFacts:
    return MigFacts(
        index=index,
        uuid=f"MIG-{gpu_instance:08x}-{compute_instance:04x}-5000-8000-000000000002",
        name=f"NVIDIA A100-SXM4-40GB MIG {slices}g.{size * 5}gb",
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        gpu_instance_profile=profile,
        placement_start=start,
        placement_size=size,
        multiprocessors=14 * compute,
        copy_engines=slices,
        decoders=slices - 1,
        encoders=0,
        jpeg_engines=1,
        ofa_engines=0,
        gpu_slices=slices,
        compute_slices=compute,
        memory_mib=size * 4864,
    )


def small() -> NvmlFacts:
    """One GPU of a small board that supports little, and a driver that knows less."""
    calls = (
        "nvmlDeviceGetAddressingMode",
        "nvmlDeviceGetBoardPartNumber",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetModuleId",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetSerial",
    )
    gpu = GpuFacts(
        index=0,
        bus_id="00000000:01:00.0",
        uuid="GPU-00000000-1111-4222-8333-444444444444",
        name="NVIDIA GeForce GTX 1050",
        minor=0,
        brand=5,
        architecture=4,
        compute_capability="6.1",
        virtualization_mode=0,
        vbios_version="86.07.39.00.47",
        errors=tuple(CallError(call, UNSUPPORTED) for call in calls),
    )
    return NvmlFacts(
        driver_version="470.82.01",
        nvml_version="11.470.82.01",
        gpus=(gpu,),
        errors=(CallError("nvmlSystemGetCudaDriverVersion", UNSUPPORTED),),
    )
