"""Which NVIDIA GPUs of a recorded node the sandbox gives to claims: the later half of those that are whole. Pure.

Half, so that both doors have something to show; the later ones, so that what people type first (GPU 0) is at the door
they know. GPUs that are cut into instances or partitions stay together at the plugin door, as a node's whole GPUs and
their parts must.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from node.inventory.facts import NodeFacts
from node.inventory.pci import pci_address


@dataclass(frozen=True, slots=True)
class Shares:
    """PCI addresses of GPUs: those ``claimed``, through DRA, and the others, through the plugin door."""

    claimed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def shares(facts: NodeFacts) -> Shares:
    """How the node's GPUs are divided; with fewer than two whole ones nothing is claimed."""
    whole: list[str] = []
    cut: list[str] = []
    for address, parted in _gpus(facts):
        (cut if parted else whole).append(address)
    claimed = whole[len(whole) - len(whole) // 2 :]
    if not claimed:
        return Shares()
    return Shares(tuple(claimed), tuple(each for each in (*whole, *cut) if each not in claimed))


def _gpus(facts: NodeFacts) -> Iterator[tuple[str, bool]]:
    """PCI address of each NVIDIA GPU, and whether it is cut or may be."""
    for gpu in facts.nvml.gpus if facts.nvml is not None else ():
        address = pci_address(gpu.bus_id)
        if address:
            yield address, bool(gpu.mig_devices) or bool(gpu.mig_mode)
