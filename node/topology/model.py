"""Where devices are and how far apart: places, the tree of cells, the topology of a snapshot, and distances.

Pure, and free of inventory, doors and I/O. A *place* is a device reduced to what nearness depends on. A *cell* is a set
of GPUs that belong together: the tree goes from the node down to single GPUs, and each NIC is attached to the smallest
cell it is nearest to. Partitions of a GPU (MIG, compute partitions) are no places: they are where their GPU is.

Distances are PCIe proximity and links between GPUs. They are computed for the pairs somebody asks about and never
stored: a node with hundreds of virtual functions has tens of thousands of pairs. Proximity is symmetric, and an
ultrametric wherever endpoints sit below ports, as PCI Express has it: of three devices, the two larger distances are
equal.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from node.values import Value, value


class Proximity(StrEnum):
    """How two devices reach each other over PCIe, in the words of ``nvidia-smi topo``; nearest first."""

    SAME = "X"
    """The same device."""
    PIX = "PIX"
    """At most one PCIe bridge on each side."""
    PXB = "PXB"
    """Several PCIe bridges, no host bridge."""
    PHB = "PHB"
    """The host bridge (root complex)."""
    NODE = "NODE"
    """Host bridges of one NUMA node."""
    SYS = "SYS"
    """The link between NUMA nodes."""

    @property
    def rank(self) -> int:
        """0 for the same device, 5 for the farthest."""
        return _RANKS[self]


_RANKS = {proximity: rank for rank, proximity in enumerate(Proximity)}


@value
class Place(Value):
    """A device and where it is.

    ``label``: what a matrix calls it (``GPU0``, ``NIC3``). ``path``: host bridge and bridges above it, outermost first
    (``pci0000:15``, ``0000:15:01.0``), without the device itself; empty when unknown. ``links``: direct fast links as
    (name of the other place, count); ``switch_links``: links to NVSwitches.
    """

    name: str
    label: str
    gpu: bool
    path: tuple[str, ...] = ()
    address: str | None = None
    numa_node: int | None = None
    links: tuple[tuple[str, int], ...] = ()
    switch_links: int = 0


class CellLevel(StrEnum):
    """What holds a cell's GPUs together."""

    GPU = "gpu"
    PAIR = "pair"
    """Two GPUs with more links between them than to others."""
    ISLAND = "island"
    """More than two GPUs with more links among them than to others."""
    SWITCH = "switch"
    """GPUs below one PCIe switch or host bridge."""
    SOCKET = "socket"
    """GPUs of one NUMA node."""
    NODE = "node"


@value
class Cell(Value):
    """A cell: its name (``socket-0``, unique in the tree), GPUs by name in order, the cells that it is made of.

    ``nics``: names of the NICs attached to this very cell, not to one below it.
    """

    name: str
    level: CellLevel
    gpus: tuple[str, ...]
    children: tuple[Cell, ...] = ()
    nics: tuple[str, ...] = ()


@value
class PlaceOverride(Value):
    """Where the device at a PCI address really is, for machines whose tree does not show it; ``path`` as in
    ``Place``."""

    address: str
    path: tuple[str, ...]
    numa_node: int | None = None


MAX_NUMA_NODE = 1023
"""The highest number that Linux gives a NUMA node."""


def below_switch(path: tuple[str, ...], switch: str) -> tuple[str, ...]:
    """The path of devices on a switch that hangs below ``path``.

    A switch below another one hangs on a port of that one: without it, two switches on one would be as near to each
    other as two devices on it.
    """
    return (*path, switch) if len(path) == 1 else (*path, f"{switch} uplink", switch)


@value
class Topology(Value):
    """Places in the order of their labels, and the root of the cell tree (None without GPUs)."""

    places: tuple[Place, ...] = ()
    root: Cell | None = None
    overridden: tuple[str, ...] = field(default=())
    """Addresses whose place comes from an override."""

    def place(self, name: str) -> Place | None:
        """The place of that name."""
        return next((place for place in self.places if place.name == name), None)


def proximity(a: Place, b: Place) -> Proximity:
    """How two places reach each other over PCIe, as ``nvidia-smi topo`` and NVML's common ancestor classify it.

    A device's own downstream port does not count, so that two cards on one switch are PIX. Virtual functions sit beside
    their physical function. Two devices whose place in the tree is unknown, or below different host bridges, differ by
    NUMA node alone; where no device has one (a machine of one socket, most virtual machines) it is the same.
    """
    if a.name == b.name:
        return Proximity.SAME
    one, two = a.path, b.path
    if not one or not two or one[0] != two[0]:
        return Proximity.NODE if a.numa_node == b.numa_node else Proximity.SYS
    shared = 1
    for first, second in zip(one[1:], two[1:], strict=False):
        if first != second:
            break
        shared += 1
    if shared == 1:
        return Proximity.PIX if _one_card(a, b) else Proximity.PHB
    return Proximity.PIX if max(len(one), len(two)) - shared <= 1 else Proximity.PXB


def link_count(a: Place, b: Place) -> int:
    """NVLinks or XGMI links between two GPUs; 0 for none, for the same GPU and for NICs.

    GPUs that both reach NVLink switches have as many between them as the one with fewer. One end's report is enough for
    a direct link: a GPU that has just stopped answering must not move its partner into another cell.
    """
    if a.name == b.name:
        return 0
    switched = min(a.switch_links, b.switch_links)
    if not a.links and not b.links:
        return switched
    return max(_direct(a, b.name), _direct(b, a.name), switched)


def _direct(place: Place, peer: str) -> int:
    return next((count for name, count in place.links if name == peer), 0)


def _one_card(a: Place, b: Place) -> bool:
    """Whether two devices on a host bridge's own bus are functions of one device: no port above them shows it."""
    if a.path != b.path or a.address is None or b.address is None:
        return False
    return a.address.rpartition(".")[0] == b.address.rpartition(".")[0]
