"""NVIDIA GPUs and MIG devices out of raw facts.

Pure: NVML's section says what there is, sysfs' where it sits and which device nodes exist; without sysfs NVML must do.
Invariants: every GPU that NVML lists becomes a device whatever of it could be read, and so does a GPU that NVML should
list; one GPU's fault touches only its own devices; names are unique.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.inventory.attribute_pool import AttributePool, Pairs
from node.inventory.device_names import DeviceNames
from node.inventory.facts import MigFacts, NodeFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind, SourceState, SourceStatus
from node.inventory.nvidia.attributes import (
    common_attributes,
    driver_attributes,
    gpu_attributes,
    gpu_capacity,
    mig_attributes,
    mig_capacity,
)
from node.inventory.nvidia.health import WAITING_STATUSES, gpu_health, mig_health, silence
from node.inventory.nvidia.links import peer_links
from node.inventory.nvidia.location import LocatedGpu, locate, nvidia_functions
from node.inventory.nvidia.mig import mig_name, mig_profile
from node.inventory.nvidia.nodes import NvidiaNodes
from node.inventory.pci import address_label, numa_node
from node.values import Value, value

VENDOR = "nvidia"


def nvidia_devices(facts: NodeFacts, identities: Identities) -> list[Device]:
    """All NVIDIA devices, each GPU followed by its MIG devices; empty without an NVML section."""
    nvml = facts.nvml
    if nvml is None:
        return []
    silent = silence(nvml)
    gpus = locate(nvml, not silent, nvidia_functions(facts.sysfs), identities)
    assembly = _Assembly(silent, driver_attributes(nvml), NvidiaNodes(facts.sysfs), AttributePool(), DeviceNames())
    return [device for gpu in gpus for device in assembly.devices(gpu)]


def nvidia_status(facts: NodeFacts) -> SourceStatus | None:
    """How NVML fared; None when no source reads it."""
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
    """What the devices of one scan share."""

    silent: str
    driver: Pairs
    nodes: NvidiaNodes
    pool: AttributePool
    names: DeviceNames

    def devices(self, gpu: LocatedGpu) -> Iterable[Device]:
        """The GPU and its MIG devices."""
        whole = self._gpu(gpu)
        yield whole
        for mig in sorted(gpu.facts.mig_devices, key=lambda mig: mig.index):
            yield self._mig(mig, gpu, whole)

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
            capacity=self.pool.capacity(gpu_capacity(facts)),
            nodes=own + self.nodes.of_display(gpu.function) + self.nodes.shared,
            location=gpu.function.path if gpu.function is not None else "",
            links=peer_links(facts.nvlinks),
        )

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
