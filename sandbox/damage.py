"""What breaking a part of a recorded node does to its facts. Pure.

The fault is written where a real one would show, and everywhere it would: a physical function takes its virtual ones
and their interfaces along. What is gone from the bus is gone from every list; only NVML goes on listing a GPU that it
has opened before, and says that it is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from node.inventory.amd_facts import KfdNode
from node.inventory.facts import GpuFacts, NodeFacts, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.net_facts import NetInterface, RdmaDevice
from node.inventory.pci import pci_address


class Damage(StrEnum):
    """What can happen to a GPU or a NIC."""

    LOST = "lost"
    """The driver cannot reach the GPU any more."""
    DOWN = "down"
    """The NIC has no link."""
    GONE = "gone"
    """It is not on the bus."""
    TAKEN = "taken"
    """The NIC's interface is in the network namespace of a pod."""


LOST = "GPU_IS_LOST"
"""NVML's error for a GPU that fell off the bus."""


def damaged(facts: NodeFacts, damages: Mapping[str, Damage], errors: Mapping[str, str]) -> NodeFacts:
    """The facts with these functions broken, by PCI address; ``errors`` are NVML's for lost GPUs (else LOST)."""
    if not damages:
        return facts
    names: frozenset[str] = frozenset()
    sysfs = facts.sysfs
    if sysfs is not None:
        sysfs, names = _sysfs(sysfs, damages)
    network = facts.network
    if network is not None:
        network = replace(
            network,
            links=tuple(link for link in network.links if link.name not in names),
            addresses=tuple(each for each in network.addresses if each.interface not in names),
            default_routes=tuple(route for route in network.default_routes if route.interface not in names),
        )
    nvml = _nvml(facts.nvml, damages, errors) if facts.nvml is not None else None
    return replace(facts, nvml=nvml, sysfs=sysfs, network=network)


def _nvml(nvml: NvmlFacts, damages: Mapping[str, Damage], errors: Mapping[str, str]) -> NvmlFacts:
    gpus = []
    for gpu in nvml.gpus:
        address = pci_address(gpu.bus_id) or ""
        if damages.get(address) in (Damage.LOST, Damage.GONE):
            gpus.append(GpuFacts(gpu.index, error=errors.get(address, LOST), bus_id=gpu.bus_id))
        else:
            gpus.append(gpu)
    return replace(nvml, gpus=tuple(gpus))


def _sysfs(sysfs: SysfsFacts, damages: Mapping[str, Damage]) -> tuple[SysfsFacts, frozenset[str]]:
    """The changed section, and the names of the interfaces that the host does not have any more."""
    state: dict[str, Damage] = {}
    for function in sysfs.pci:
        found = damages.get(function.address) or (damages.get(function.physfn) if function.physfn else None)
        # A pod that has the interface of a physical function has not those of its virtual ones.
        if found is not None and (found is not Damage.TAKEN or function.address in damages):
            state[function.path] = found
    gone = {path for path, damage in state.items() if damage is Damage.GONE}
    absent = gone | {path for path, damage in state.items() if damage is Damage.TAKEN}
    down = {path for path, damage in state.items() if damage is Damage.DOWN}
    kept = tuple(each for each in sysfs.interfaces if not _below(each.path, absent))
    lost = frozenset(each.name for each in sysfs.interfaces) - frozenset(each.name for each in kept)
    functions = tuple(_function(each, state.get(each.path)) for each in sysfs.pci if each.path not in gone)
    addresses = {function.address for function in functions}
    changed = replace(
        sysfs,
        pci=functions,
        interfaces=tuple(_without_link(each) if _below(each.path, down) else each for each in kept),
        rdma=tuple(
            _without_port(each) if _below(each.path, down) else each
            for each in sysfs.rdma
            if not _below(each.path, gone)
        ),
        subfunctions=tuple(each for each in sysfs.subfunctions if not _below(each.path, gone)),
        amd_gpus=tuple(each for each in sysfs.amd_gpus if each.address in addresses),
    )
    return _without_kfd(changed, addresses) if sysfs.kfd else changed, lost


def _without_kfd(sysfs: SysfsFacts, addresses: set[str]) -> SysfsFacts:
    """Without the compute nodes and partitions of GPUs that are gone, and without links to them."""
    gone = {node.node: f"renderD{node.render_minor}" for node in sysfs.kfd if _address(node) not in addresses}
    nodes = tuple(
        replace(node, links=tuple(link for link in node.links if link.to not in gone))
        for node in sysfs.kfd
        if node.node not in gone
    )
    partitions = tuple(each for each in sysfs.amd_partitions if not set(each.drm) & set(gone.values()))
    return replace(sysfs, kfd=nodes, amd_partitions=partitions)


def _address(node: KfdNode) -> str:
    """Bus, device and function are in the low 16 bits of KFD's location."""
    bus, device, function = node.location_id >> 8 & 0xFF, node.location_id >> 3 & 0x1F, node.location_id & 7
    return f"{node.domain:04x}:{bus:02x}:{device:02x}.{function}"


def _below(path: str, functions: set[str]) -> bool:
    return any(path.startswith(f"{function}/") for function in functions)


def _function(function: PciFunction, damage: Damage | None) -> PciFunction:
    """A GPU of another vendor has no library that says it is lost: its driver lets go of it."""
    if damage is Damage.LOST and function.driver != "nvidia":
        return replace(function, driver=None, drm=())
    return function


def _without_link(interface: NetInterface) -> NetInterface:
    return replace(interface, carrier=False, operstate="down", speed_mbps=None)


def _without_port(device: RdmaDevice) -> RdmaDevice:
    ports = tuple(replace(port, state="1: DOWN", physical_state="2: Polling") for port in device.ports)
    return replace(device, ports=ports)
