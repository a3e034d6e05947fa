"""NVLinks of a GPU, counted by what is at their other end.

Pure. Links that are down count for nothing, and so do links to a CPU (Grace, POWER), which bring no device nearer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from node.inventory.facts import NvLink
from node.inventory.model import PeerLink
from node.inventory.pci import pci_address


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
