"""The nodes that placement is measured on, as places."""

from __future__ import annotations

from collections.abc import Mapping

from node.inventory.model import Device, DeviceKind
from node.offer import OfferedDevice
from node.topology.build import topology_of
from node.topology.model import Place, Topology
from plugin.preferred import PlacementMap, Preference

CUBE_MESH: Mapping[tuple[int, int], int] = {
    pair: count
    for count, pairs in {
        1: ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)),
        2: ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)),
    }.items()
    for pair in pairs
}
"""NVLinks of a DGX-1 with V100, by the numbers of the two GPUs."""


def switched(gpus: int) -> Topology:
    """Cells of 1, 2, 4, 8 (and 16) GPUs by PCIe, every GPU at NVSwitches: an HGX board, a DGX-2."""
    return topology_of(_place(number, gpus, switch_links=18) for number in range(gpus))


def cube_mesh() -> Topology:
    """A DGX-1: eight GPUs with one or two links between some of them."""
    return topology_of(_place(number, 8, CUBE_MESH) for number in range(8))


def two_cube_meshes() -> Topology:
    """Sixteen GPUs with uneven links, more so than any machine sold: two cube meshes and a ring through both."""
    mesh = {(a + start, b + start): count for start in (0, 8) for (a, b), count in CUBE_MESH.items()}
    ring = {(number, number + 8): 1 + number % 2 for number in range(8)}
    return topology_of(_place(number, 16, mesh | ring) for number in range(16))


def flat(gpus: int) -> Topology:
    """A virtual machine: nothing is known but the GPUs."""
    return topology_of(Place(f"gpu-{number}", f"GPU{number}", gpu=True) for number in range(gpus))


def preference_of(topology: Topology) -> Preference:
    """What the agent has in memory for a resource of all GPUs; ids are the places' names."""
    devices = {
        place.name: OfferedDevice(place.name, Device(place.name, DeviceKind.GPU, "nvidia"), healthy=True)
        for place in topology.places
    }
    return Preference(devices, PlacementMap(topology))


def _place(number: int, gpus: int, links: Mapping[tuple[int, int], int] | None = None, switch_links: int = 0) -> Place:
    socket = number * 2 // gpus
    mine = {b if a == number else a: count for (a, b), count in (links or {}).items() if number in (a, b)}
    return Place(
        name=f"gpu-{number}",
        label=f"GPU{number}",
        gpu=True,
        path=(f"pci000{socket}:00", f"up-{number // 4}", f"switch-{number // 2}", f"port-{number}"),
        numa_node=socket,
        links=tuple(sorted((f"gpu-{peer}", count) for peer, count in mine.items())),
        switch_links=switch_links,
    )
