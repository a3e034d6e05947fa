"""How far apart two places are: PCIe proximity out of the tree, and links between GPUs.

Pure. Distances are computed for the pairs somebody asks about and never stored: a node with hundreds of virtual
functions has tens of thousands of pairs, and nobody needs them all. Proximity is symmetric, and an ultrametric wherever
endpoints sit below ports, as PCI Express has it: of three devices, the two larger distances are equal.
"""

from __future__ import annotations

from node.topology.model import Place, Proximity


def proximity(a: Place, b: Place) -> Proximity:
    """How two places reach each other over PCIe, as ``nvidia-smi topo`` and NVML's common ancestor classify it.

    A device's own downstream port does not count, so that two cards on one switch are PIX. Virtual functions sit beside
    their physical function. Two devices whose place in the tree is unknown, or below different host bridges, are told
    apart by NUMA node alone; where no device has one (a machine of one socket, most virtual machines) it is the same.
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

    GPUs that both reach NVLink switches have as many between them as the one with fewer. One end's word is enough for a
    direct link: a GPU that has just stopped answering must not move its partner into another cell.
    """
    if a.name == b.name:
        return 0
    direct = max(_direct(a, b.name), _direct(b, a.name))
    return max(direct, min(a.switch_links, b.switch_links))


def _direct(place: Place, peer: str) -> int:
    return next((count for name, count in place.links if name == peer), 0)


def _one_card(a: Place, b: Place) -> bool:
    """Whether two devices on a host bridge's own bus are functions of one device: no port above them tells."""
    if a.path != b.path or a.address is None or b.address is None:
        return False
    return a.address.rpartition(".")[0] == b.address.rpartition(".")[0]
