"""AMD GPUs and their compute partitions out of raw facts.

Pure. A GPU in a partitioned mode (``CPX``) is several devices: the PCI function with its own graphics nodes is the
first partition and stays the kind ``gpu``, as in AMD's plugin; every further one is a platform device ``amdgpu_xcp_N``
and a device of the kind ``partition`` below it. KFD, the kernel's compute driver, shows which partition belongs to
which GPU and how GPUs are linked by XGMI; its location ids hold bus, device and function in the low 16 bits and the
number of the partition in the highest four, or, by older kernels, in place of the function.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from node.health.state import Health
from node.inventory.amd.facts import AmdGpu, AmdPartition, KfdNode
from node.inventory.device_nodes import DrmNodes, function_attributes, unhealthy, without_driver
from node.inventory.facts import NodeFacts, PciFunction, SysfsFacts
from node.inventory.model import (
    Attribute,
    AttributeValue,
    Device,
    DeviceKind,
    DeviceNode,
    PeerLink,
    sorted_attributes,
    sorted_capacity,
)
from node.inventory.pci import address_label, display_mode, numa_node
from node.values import Value, value

VENDOR = "amd"
PCI_VENDOR = "0x1002"
DRIVER = "amdgpu"

_XGMI = 11
"""KFD's number for the link type XGMI."""
_ACCELERATOR = "0x12"
_OTHER_DISPLAY = "0x0380"
"""Classes of data centre GPUs without display: processing accelerator, other display controller."""


def amd_devices(facts: NodeFacts) -> list[Device]:
    """All AMD GPUs, each followed by its partitions."""
    if facts.sysfs is None:
        return []
    functions = [function for function in facts.sysfs.pci if function.vendor == PCI_VENDOR and _is_gpu(function)]
    functions.sort(key=attrgetter("address"))
    kfd = _kfd_by_address(facts.sysfs.kfd, {function.address for function in functions})
    assembly = _Assembly(facts.sysfs, kfd, DrmNodes(facts.sysfs, "/dev/kfd"))
    found = [device for function in functions for device in assembly.devices(function)]
    return found + assembly.strays()


def _is_gpu(function: PciFunction) -> bool:
    return display_mode(function) is not None or function.class_code.startswith((_ACCELERATOR, _OTHER_DISPLAY))


def _kfd_by_address(nodes: Iterable[KfdNode], functions: set[str]) -> dict[str, list[_Part]]:
    """The parts of each GPU, the first partition first."""
    found: dict[str, list[_Part]] = {}
    for node in nodes:
        place, number = node.location_id & 0xFFFF, node.location_id >> 28 & 0xF
        address = _address(node.domain, place)
        if number == 0 and address not in functions and _address(node.domain, place & ~7) in functions:
            address, number = _address(node.domain, place & ~7), place & 7
        found.setdefault(address, []).append(_Part(number, node))
    for parts in found.values():
        parts.sort(key=lambda part: (part.number, part.node.node))
    return found


def address_of(node: KfdNode) -> str:
    """The PCI address in a compute node's location; in older kernels a partition's number is its function."""
    return _address(node.domain, node.location_id & 0xFFFF)


def _address(domain: int, place: int) -> str:
    return f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


@value
class _Part(Value):
    """A GPU or one of its partitions as KFD has it, and the partition's number."""

    number: int
    node: KfdNode


@value
class _Assembly(Value):
    """Facts that the devices of one scan share."""

    sysfs: SysfsFacts
    kfd: dict[str, list[_Part]]
    nodes: DrmNodes

    def devices(self, function: PciFunction) -> list[Device]:
        """The devices of a GPU: itself and its further partitions."""
        gpu = next((each for each in self.sysfs.amd_gpus if each.address == function.address), AmdGpu(function.address))
        whole = self._gpu(function, gpu)
        parts = {f"renderD{part.node.render_minor}": part for part in self.kfd.get(function.address, [])}
        found = [whole]
        for partition in self.sysfs.amd_partitions:
            part = next((parts[name] for name in partition.drm if name in parts), None)
            if part is not None:
                found.append(self._part(partition, part.number, whole))
        return found

    def strays(self) -> list[Device]:
        """Partitions whose GPU KFD does not name: they are shown but not allocated."""
        minors = {f"renderD{part.node.render_minor}" for parts in self.kfd.values() for part in parts}
        return [
            Device(
                name=f"partition-{partition.name.replace('_', '-')}",
                kind=DeviceKind.PARTITION,
                vendor=VENDOR,
                index=partition.name,
                health=unhealthy("KFD does not say which GPU it belongs to"),
                nodes=self.nodes.of(partition.drm),
            )
            for partition in self.sysfs.amd_partitions
            if not minors & set(partition.drm)
        ]

    def _gpu(self, function: PciFunction, gpu: AmdGpu) -> Device:
        nodes = self.nodes.of(function.drm)
        kfd = self.kfd.get(function.address, [])
        return Device(
            name=f"gpu-{address_label(function.address)}",
            kind=DeviceKind.GPU,
            vendor=VENDOR,
            uuid=_uuid(gpu.unique_id),
            pci_address=function.address,
            numa_node=numa_node(function),
            health=self._health(function, nodes, kfd),
            attributes=_attributes(function, gpu, kfd[0].node if kfd else None),
            capacity=sorted_capacity([("memory", gpu.vram_bytes)]),
            nodes=nodes,
            location=function.path,
            links=self._links(function.address),
        )

    def _part(self, partition: AmdPartition, number: int, whole: Device) -> Device:
        own = {attribute.name: attribute.value for attribute in whole.attributes}
        nodes = self.nodes.of(partition.drm)
        assert whole.pci_address is not None
        return Device(
            name=f"partition-{address_label(whole.pci_address)}-{number}",
            kind=DeviceKind.PARTITION,
            vendor=VENDOR,
            # The driver's own name for it, and the id that AMD's plugin gives it.
            index=partition.name,
            pci_address=whole.pci_address,
            numa_node=whole.numa_node,
            parent=whole.name,
            health=whole.health if not whole.health.usable else self.nodes.health(nodes),
            attributes=sorted_attributes({**own, "partition": number, "platformDevice": partition.name}.items()),
            nodes=nodes,
            location=whole.location,
        )

    def _health(self, function: PciFunction, nodes: tuple[DeviceNode, ...], kfd: list[_Part]) -> Health:
        undriven = without_driver(function, (DRIVER,))
        if undriven is not None or kfd:
            return undriven or self.nodes.health(nodes)
        return unhealthy("KFD does not list it, so it cannot compute")

    def _links(self, address: str) -> tuple[PeerLink, ...]:
        places = {part.node.node: other for other, parts in self.kfd.items() for part in parts}
        ends = (link.to for part in self.kfd.get(address, []) for link in part.node.links if link.type == _XGMI)
        peers = {places[end] for end in ends if end in places} - {address}
        # KFD shows that two GPUs are linked, but not by how many links.
        return tuple(PeerLink(peer, 1) for peer in sorted(peers))


def _attributes(function: PciFunction, gpu: AmdGpu, node: KfdNode | None) -> tuple[Attribute, ...]:
    compute, memory = (text.lower() if text else None for text in (gpu.compute_partition, gpu.memory_partition))
    partitioned = compute is not None and memory is not None and compute != "spx"
    pairs: list[tuple[str, AttributeValue | None]] = [
        *function_attributes(function),
        ("productName", gpu.product_name),
        ("computePartition", compute),
        ("memoryPartition", memory),
        ("profile", f"{compute}_{memory}" if partitioned else None),
        ("gfxVersion", _gfx(node.gfx_target_version) if node is not None else None),
        ("vbiosVersion", gpu.vbios_version),
    ]
    return sorted_attributes(pairs)


def _gfx(version: int | None) -> str | None:
    """90402 is gfx942, 90010 is gfx90a: the stepping is a hexadecimal digit."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None


def _uuid(unique_id: str | None) -> str | None:
    """As ROCm's runtime writes it; a GPU without one says 0."""
    digits = (unique_id or "").removeprefix("0x").lower()
    return f"GPU-{digits:0>16}" if digits.strip("0") else None
