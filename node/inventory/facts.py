"""Raw facts as the sources saw them, without conclusions.

A recorded node is exactly these values as YAML, so field names are part of that file's schema. Nothing here is
interpreted: addresses are written as the driver writes them, a NUMA node of -1 stays -1, and a call that failed is
named with its error. ``node.inventory.devices`` and the code below it decide what the facts mean, once, for live and
recorded nodes alike.
"""

from __future__ import annotations

from node.inventory.amd.facts import AmdGpu, AmdPartition, KfdNode
from node.inventory.net_facts import NetInterface, NetworkFacts, RdmaDevice, SubFunction
from node.values import Value, value


@value
class CallError(Value):
    """An NVML call that failed: the function's name and the error's, such as NOT_SUPPORTED or GPU_IS_LOST."""

    call: str
    error: str


@value
class NvLink(Value):
    """One NVLink: its number, whether it is up, and what is at its other end (``gpu``, ``switch``, ``ibmnpu``)."""

    link: int
    active: bool
    remote_type: str | None = None
    remote_bus_id: str | None = None


@value
class Ancestor(Value):
    """NVML's common ancestor level (0, 10, 20, 30, 40, 50) between this GPU and the one with index ``gpu``."""

    gpu: int
    level: int


@value
class Fabric(Value):
    """Membership in an NVLink fabric: ``state``, ``status``, ``health_mask`` and ``health_summary`` are NVML's numbers.

    The last two are None where the driver is too old to have them.
    """

    cluster_uuid: str
    clique_id: int
    state: int
    status: int
    health_mask: int | None = None
    health_summary: int | None = None


@value
class SramErrors(Value):
    """Uncorrectable errors of a GPU's SRAM, since the driver was loaded and ever, and whether they are too many."""

    volatile_uncorrectable: int
    aggregate_uncorrectable: int
    threshold_exceeded: bool


@value
class MigFacts(Value):
    """One MIG device; ``memory_mib`` and the counts are NVML's device attributes."""

    index: int
    uuid: str | None = None
    name: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    gpu_instance_profile: int | None = None
    placement_start: int | None = None
    placement_size: int | None = None
    multiprocessors: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg_engines: int | None = None
    ofa_engines: int | None = None
    gpu_slices: int | None = None
    compute_slices: int | None = None
    memory_mib: int | None = None
    errors: tuple[CallError, ...] = ()


@value
class MigProfile(Value):
    """A GPU instance profile: what an instance gets, and the memory slices that it can take.

    ``index`` is NVML's constant for the profile (NVML_GPU_INSTANCE_PROFILE_*), ``profile_id`` the GPU's own id of it;
    ``name`` as newer drivers report it (``MIG 1g.5gb+me``). An instance takes ``size`` memory slices from one of
    ``starts`` on. A profile whose placements have different sizes is several of these.
    """

    index: int
    profile_id: int
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    size: int
    starts: tuple[int, ...]
    name: str | None = None


@value
class MigTable(Value):
    """The profiles of all GPUs with these indices: GPUs of one model have the same ones."""

    gpus: tuple[int, ...]
    profiles: tuple[MigProfile, ...]


@value
class GpuFacts(Value):
    """One GPU as NVML shows it; ``error`` is set if the GPU is lost or NVML gave no handle for it.

    ``bus_id`` as NVML writes it (``00000000:1B:00.0``), ``memory_bytes`` in bytes, ``compute_capability`` as
    ``major.minor``, ``mig_mode`` and ``mig_pending`` 0 or 1 where the GPU has MIG.
    """

    index: int
    error: str | None = None
    bus_id: str | None = None
    uuid: str | None = None
    name: str | None = None
    minor: int | None = None
    serial: str | None = None
    brand: int | None = None
    architecture: int | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    module_id: int | None = None
    addressing_mode: str | None = None
    virtualization_mode: int | None = None
    ecc_mode: int | None = None
    vbios_version: str | None = None
    board_part_number: str | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    mig_mode: int | None = None
    mig_pending: int | None = None
    mig_max_devices: int | None = None
    fabric: Fabric | None = None
    sram: SramErrors | None = None
    nvlinks: tuple[NvLink, ...] = ()
    ancestors: tuple[Ancestor, ...] = ()
    mig_devices: tuple[MigFacts, ...] = ()
    errors: tuple[CallError, ...] = ()


@value
class NvmlFacts(Value):
    """NVML's facts; ``status`` is ``ok`` or the name of the error that keeps it silent (LIBRARY_NOT_FOUND, ...).

    With a status other than ``ok`` the GPUs are those of the last good read of the same process.
    ``cuda_driver_version`` is NVML's number, 12040 for 12.4. ``mig_tables`` are read only on request.
    """

    status: str = "ok"
    detail: str = ""
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_driver_version: int | None = None
    gpus: tuple[GpuFacts, ...] = ()
    mig_tables: tuple[MigTable, ...] = ()
    errors: tuple[CallError, ...] = ()

    def mig_profiles(self, gpu: int) -> tuple[MigProfile, ...]:
        """The profiles of the GPU with this index; nothing where it has no MIG, or they were not read."""
        return next((table.profiles for table in self.mig_tables if gpu in table.gpus), ())


@value
class PciFunction(Value):
    """One PCI function as sysfs shows it: numbers are sysfs' own text (``0x030200``, ``0x10de``).

    ``path`` is the path below /sys/devices (``pci0000:15/0000:15:01.0/0000:16:00.0``): the PCIe tree. ``physfn`` is the
    address of the physical function that a virtual one belongs to, ``vf_index`` its number there; ``sriov_totalvfs``
    and ``sriov_numvfs`` are a physical function's. ``iommu_group_name`` is ``vfio-noiommu`` where there is no IOMMU.
    ``vfio`` and ``uio`` name the character devices of user-space drivers: ``vfio3`` in /dev/vfio/devices, ``uio0``.
    ``vpd_uuid``: the UUID that all functions of one NIC have in common; read of NVIDIA's NICs and Data Direct functions
    on nodes with the latter, else None.
    """

    address: str
    path: str
    class_code: str
    vendor: str
    device: str
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    revision: str | None = None
    numa_node: int | None = None
    driver: str | None = None
    iommu_group: str | None = None
    drm: tuple[str, ...] = ()
    physfn: str | None = None
    vf_index: int | None = None
    sriov_totalvfs: int | None = None
    sriov_numvfs: int | None = None
    iommu_group_name: str | None = None
    vfio: str | None = None
    uio: str | None = None
    acpi_index: int | None = None
    vpd_uuid: str | None = None


@value
class DeviceFile(Value):
    """A device node below the device root, by its path inside it (``/dev/nvidia0``)."""

    path: str
    kind: str
    major: int
    minor: int


@value
class CapabilityFile(Value):
    """An access file below /proc/driver/nvidia/capabilities and the minor number of its device node."""

    path: str
    minor: int


@value
class DriverText(Value):
    """A file in a PCI function's folder that its driver made, by its name there, and the text in it."""

    name: str
    text: str


@value
class AcceleratorFacts(Value):
    """What an accelerator's driver shows of a PCI function beyond the facts of every function.

    ``nodes`` are its entries of /sys/class/accel (``accel0``, ``accel_controlD0``); ``texts`` those files that the
    accelerator's vendor has read.
    """

    address: str
    nodes: tuple[str, ...] = ()
    texts: tuple[DriverText, ...] = ()

    def text(self, name: str) -> str | None:
        """The text of a file, None where there is none."""
        return next((each.text for each in self.texts if each.name == name), None)


@value
class SysfsFacts(Value):
    """What the kernel shows in /sys, /dev and /proc; ``nvidia_module_version`` of the loaded kernel module.

    ``pci`` holds GPUs, NVSwitches, NICs with their Data Direct functions, and every function with an RDMA device, each
    with what is below it in the lists of interfaces, RDMA devices and subfunctions. ``rdma_exclusive``: whether an RDMA
    device works in one network namespace only; None without RDMA, or where the kernel does not say.
    """

    pci: tuple[PciFunction, ...] = ()
    device_files: tuple[DeviceFile, ...] = ()
    nvidia_capabilities: tuple[CapabilityFile, ...] = ()
    nvidia_module_version: str | None = None
    interfaces: tuple[NetInterface, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    subfunctions: tuple[SubFunction, ...] = ()
    amd_gpus: tuple[AmdGpu, ...] = ()
    amd_partitions: tuple[AmdPartition, ...] = ()
    kfd: tuple[KfdNode, ...] = ()
    accelerators: tuple[AcceleratorFacts, ...] = ()
    rdma_exclusive: bool | None = None
    errors: tuple[str, ...] = ()


@value
class DriverFiles(Value):
    """Files of the user-space driver below the driver root, by their paths inside it."""

    version: str
    libraries: tuple[str, ...] = ()
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    configuration: tuple[str, ...] = ()


@value
class CdiFacts(Value):
    """Qualified device names in the CDI specs that others wrote, and files that could not be read, with the reason."""

    devices: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


@value
class NodeFacts(Value):
    """Everything the sources saw; a section is None when no source reads it."""

    nvml: NvmlFacts | None = None
    sysfs: SysfsFacts | None = None
    network: NetworkFacts | None = None
    cdi: CdiFacts | None = None
    driver_files: DriverFiles | None = None


def merge(parts: tuple[NodeFacts, ...]) -> NodeFacts:
    """One value out of several sources' sections; the first source that has a section wins."""
    return NodeFacts(
        nvml=next((part.nvml for part in parts if part.nvml is not None), None),
        sysfs=next((part.sysfs for part in parts if part.sysfs is not None), None),
        network=next((part.network for part in parts if part.network is not None), None),
        cdi=next((part.cdi for part in parts if part.cdi is not None), None),
        driver_files=next((part.driver_files for part in parts if part.driver_files is not None), None),
    )
