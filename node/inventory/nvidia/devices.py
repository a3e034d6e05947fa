"""NVIDIA GPUs and MIG devices out of raw facts, with their device nodes and links.

Pure. NVML's section says which devices there are, sysfs' where they sit and which device nodes exist; without sysfs,
NVML's must do. Invariants: every GPU that NVML lists becomes a device, whatever of it could be read, and so does a GPU
that NVML should list; one GPU's fault touches only its own devices; names are unique.

Device nodes are looked up once per scan and the same values serve every device: a node of 1,000 MIG devices would
otherwise hold thousands of equal ones. NVLinks that are down are not counted, and neither are links to a CPU (Grace,
POWER), which bring no device nearer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter

from node.inventory.assembly import AttributePool, DeviceNames, Pairs
from node.inventory.device_nodes import DeviceFiles
from node.inventory.facts import (
    DeviceFile,
    GpuFacts,
    MigFacts,
    NodeFacts,
    NvLink,
    NvmlFacts,
    PciFunction,
    SysfsFacts,
)
from node.inventory.identity import Identities
from node.inventory.model import (
    Device,
    DeviceKind,
    DeviceNode,
    NodeRole,
    PartitionShape,
    PeerLink,
    SourceState,
    SourceStatus,
)
from node.inventory.nvidia.attributes import (
    common_attributes,
    driver_attributes,
    gpu_attributes,
    mig_attributes,
    mig_capacity,
    mig_name,
    mig_profile,
)
from node.inventory.nvidia.health import WAITING_STATUSES, gpu_health, mig_health, silence
from node.inventory.nvidia.location import LocatedGpu, locate, nvidia_functions
from node.inventory.pci import address_label, numa_node, pci_address
from node.values import Value, value

VENDOR = "nvidia"


def nvidia_devices(facts: NodeFacts, identities: Identities) -> list[Device]:
    """All NVIDIA devices, each GPU followed by its MIG devices; empty without an NVML section."""
    nvml = facts.nvml
    if nvml is None:
        return []
    silent = silence(nvml)
    gpus = locate(nvml, not silent, nvidia_functions(facts.sysfs), identities)
    assembly = _Assembly(
        nvml, silent, driver_attributes(nvml), NvidiaNodes(facts.sysfs), AttributePool(), DeviceNames()
    )
    return [device for gpu in gpus for device in assembly.devices(gpu)]


def nvidia_status(facts: NodeFacts) -> SourceStatus | None:
    """The status of NVML; None if no source reads it."""
    if facts.nvml is None:
        return None
    reason = silence(facts.nvml)
    if not reason:
        return SourceStatus("nvml", SourceState.OK)
    if facts.nvml.status in WAITING_STATUSES:
        return SourceStatus("nvml", SourceState.WAITING, f"waiting for driver: {reason}{_on_the_bus(facts)}")
    return SourceStatus("nvml", SourceState.FAILED, reason)


def _on_the_bus(facts: NodeFacts) -> str:
    if facts.sysfs is None:
        return ""
    functions = nvidia_functions(facts.sysfs)
    if not functions:
        return "; no NVIDIA GPU on the PCI bus"
    drivers = ", ".join(sorted({function.driver or "none" for function in functions}))
    plural = "s" if len(functions) > 1 else ""
    return f"; {len(functions)} NVIDIA GPU{plural} on the PCI bus (kernel driver: {drivers})"


@value
class _Assembly(Value):
    """Facts that the devices of one scan share."""

    nvml: NvmlFacts
    silent: str
    driver: Pairs
    nodes: NvidiaNodes
    pool: AttributePool
    names: DeviceNames

    def devices(self, gpu: LocatedGpu) -> Sequence[Device]:
        """The devices of a GPU: itself and its MIG devices; those of an earlier scan if they would be equal."""
        key = self._key(gpu)
        known, found = _LAST.get(gpu.facts.index, (None, ()))
        if known == key and self.names.reserve([device.name for device in found]):
            return found
        whole = self._gpu(gpu)
        migs = sorted(gpu.facts.mig_devices, key=attrgetter("index"))
        made = (whole, *(self._mig(mig, gpu, whole) for mig in migs))
        if not self.names.numbered:
            if len(_LAST) >= _MOST_KNOWN:
                _LAST.clear()
            _LAST[gpu.facts.index] = key, made
        return made

    def _key(self, gpu: LocatedGpu) -> tuple[object, ...]:
        """Everything that the devices of a GPU are made from."""
        facts, nodes = gpu.facts, self.nodes
        return (
            gpu,
            self.silent,
            self.driver,
            self.nvml.mig_profiles(facts.index),
            nodes.listed,
            nodes.shared,
            nodes.of_gpu(facts.minor),
            nodes.of_display(gpu.function),
            *(nodes.of_mig(facts.minor, mig) for mig in facts.mig_devices),
        )

    def _gpu(self, gpu: LocatedGpu) -> Device:
        facts = gpu.facts
        place = address_label(gpu.address) if gpu.address is not None else f"index-{facts.index}"
        own = self.nodes.of_gpu(facts.minor)
        missing = next((node.path for node in own if self.nodes.listed and not node.present), "")
        return Device(
            name=self.names.unique(f"gpu-{place}"),
            kind=DeviceKind.GPU,
            vendor=VENDOR,
            uuid=gpu.uuid,
            index=str(facts.index) if facts.index >= 0 else None,
            pci_address=gpu.address,
            numa_node=numa_node(gpu.function),
            health=gpu_health(gpu, self.silent, missing),
            attributes=self.pool.attributes((*self.driver, *common_attributes(gpu), *gpu_attributes(gpu))),
            # In bytes; none on parts with coherent memory, for which NVML does not report it.
            capacity=self.pool.capacity([("memory", facts.memory_bytes)]),
            nodes=own + self.nodes.of_display(gpu.function) + self.nodes.shared,
            location=gpu.function.path if gpu.function is not None else "",
            links=peer_links(facts.nvlinks),
            partitions=self._partitions(facts),
        )

    def _partitions(self, gpu: GpuFacts) -> tuple[PartitionShape, ...]:
        profiles = self.nvml.mig_profiles(gpu.index)
        if not profiles:
            return ()
        # Here and not above: few nodes have profiles read.
        from node.inventory.nvidia.layouts import shapes_of

        return shapes_of(profiles, gpu.memory_bytes)

    def _mig(self, mig: MigFacts, gpu: LocatedGpu, whole: Device) -> Device:
        profile = mig_profile(mig, gpu.facts.memory_bytes)
        # Graphics nodes only serve instances made with graphics engines; the profile says so.
        display = self.nodes.of_display(gpu.function) if profile and "gfx" in profile else ()
        own = self.nodes.of_gpu(gpu.facts.minor) + self.nodes.of_mig(gpu.facts.minor, mig)
        return Device(
            name=self.names.unique(mig_name(mig, profile, whole.name, gpu.address)),
            kind=DeviceKind.MIG,
            vendor=VENDOR,
            uuid=mig.uuid,
            index=f"{gpu.facts.index}:{mig.index}",
            pci_address=gpu.address,
            numa_node=whole.numa_node,
            parent=whole.name,
            health=mig_health(mig, whole.name, whole.health),
            attributes=self.pool.attributes(
                (*self.driver, *common_attributes(gpu), *mig_attributes(mig, gpu, profile))
            ),
            capacity=self.pool.capacity(mig_capacity(mig)),
            nodes=own + display + self.nodes.shared,
            location=whole.location,
        )


_MOST_KNOWN = 128
"""More GPUs than a node has."""
_LAST: dict[int, tuple[tuple[object, ...], tuple[Device, ...]]] = {}
"""By index of a GPU, its devices of the last scan, and what they were made from: a scan seldom finds anything new."""


def peer_links(links: Iterable[NvLink]) -> tuple[PeerLink, ...]:
    """Links that are up: those to switches first (peer None), then those to each GPU, by its address."""
    counts: Counter[str] = Counter()
    switches = 0
    for link in links:
        if link.active and link.remote_type == "switch":
            switches += 1
        elif link.active and link.remote_type == "gpu":
            address = pci_address(link.remote_bus_id)
            if address is not None:
                counts[address] += 1
    to_switches = (PeerLink(None, switches),) if switches else ()
    return to_switches + tuple(PeerLink(address, counts[address]) for address in sorted(counts))


_CAPABILITY = "/dev/nvidia-caps/nvidia-cap"
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_AUXILIARY = re.compile(
    r"/dev/(gdrdrv|nvidia-fs\d*|infiniband/uverbs\d+|infiniband/rdma_cm|nvidia-caps-imex-channels/channel\d+)"
)
_DRM = ("card", "renderD")
_DIGITS = "0123456789"


class NvidiaNodes(DeviceFiles):
    """Finds the nodes of each device; ``shared`` are those of all of them: control nodes, then auxiliary ones."""

    def __init__(self, sysfs: SysfsFacts | None) -> None:
        super().__init__(sysfs)
        files = sysfs.device_files if sysfs is not None else ()
        self._capabilities = {each.path: each.minor for each in sysfs.nvidia_capabilities} if sysfs is not None else {}
        # The files of all capabilities have one major number, which the driver gets when it is loaded.
        self._major = next((each.major for each in files if each.path.startswith(_CAPABILITY)), None)
        control = tuple(self.node(path, NodeRole.CONTROL) for path in _CONTROL if self.has(path))
        self.shared = control + tuple(self.node(file.path, NodeRole.AUXILIARY) for file in _auxiliary(files))

    def of_gpu(self, minor: int | None) -> tuple[DeviceNode, ...]:
        """``/dev/nvidia<minor>``; none without a minor number (WSL)."""
        return () if minor is None else (self.node(f"/dev/nvidia{minor}", NodeRole.DEVICE),)

    def of_display(self, function: PciFunction | None) -> tuple[DeviceNode, ...]:
        """The graphics nodes of the PCI function."""
        names = function.drm if function is not None else ()
        return tuple(self.node(f"/dev/dri/{name}", NodeRole.RENDER) for name in names if _is_graphics(name))

    def of_mig(self, gpu_minor: int | None, mig: MigFacts) -> tuple[DeviceNode, ...]:
        """The capability nodes of GPU instance and compute instance; containers get them even if the host lacks them.

        Paths below /proc/driver/nvidia/capabilities carry the GPU's minor number.
        """
        instance = f"gpu{gpu_minor}/mig/gi{mig.gpu_instance}"
        minors = (
            self._capabilities.get(f"{instance}/access"),
            self._capabilities.get(f"{instance}/ci{mig.compute_instance}/access"),
        )
        return tuple(self._of_capability(minor) for minor in minors if minor is not None)

    def _of_capability(self, minor: int) -> DeviceNode:
        """Whoever makes an instance need not make its files: then containers get them by their numbers."""
        path = f"{_CAPABILITY}{minor}"
        if self._major is None or self.has(path):
            return self.node(path, NodeRole.CAPABILITY)
        return DeviceNode(path, NodeRole.CAPABILITY, "c", self._major, minor, by_numbers=True)


def _is_graphics(name: str) -> bool:
    return any(name.startswith(stem) and name[len(stem) :].isdecimal() for stem in _DRM)


def _auxiliary(files: Iterable[DeviceFile]) -> list[DeviceFile]:
    """Auxiliary files in order of their stem and number (channel2 before channel10)."""
    found = [file for file in files if _AUXILIARY.fullmatch(file.path)]
    return sorted(found, key=lambda file: (file.path.rstrip(_DIGITS), len(file.path), file.path))
