"""Which free devices fit a container's stored NUMA nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from node.kubelet.checkpoint import NO_NUMA
from sandbox.kubelet.devices import DeviceSet, in_order
from sandbox.kubelet.pods import Affinity


@dataclass(frozen=True, slots=True)
class Alignment:
    """Free ids by how well they fit; every id is in exactly one list, each list in order of preference."""

    aligned: tuple[str, ...] = ()
    unaligned: tuple[str, ...] = ()
    no_affinity: tuple[str, ...] = ()


def filter_by_affinity(devices: DeviceSet, available: Iterable[str], affinity: Affinity) -> Alignment:
    """Sort ``available`` into those on the affinity's nodes, elsewhere, and without a node (kubelet 1.36).

    Nodes are visited those of the mask first, then the others, small ones first; an id on several nodes goes where it
    is met first. Without a mask, or if no device of the resource has a node, nothing is aligned.
    """
    if affinity.nodes is None or not any(device.numa for device in devices.known.values()):
        return Alignment(no_affinity=tuple(in_order(available)))
    buckets: dict[int, list[str]] = {}
    for device_id in in_order(available):
        for node in devices.numa_of(device_id) or (NO_NUMA,):
            buckets.setdefault(node, []).append(device_id)
    mask = affinity.nodes
    order = sorted(buckets, key=lambda node: (node == NO_NUMA, node not in mask, len(buckets[node]), node))
    lists: dict[str, list[str]] = {"aligned": [], "unaligned": [], "no_affinity": []}
    seen: set[str] = set()
    for node in order:
        kind = "no_affinity" if node == NO_NUMA else "aligned" if node in mask else "unaligned"
        lists[kind] += [device_id for device_id in buckets[node] if device_id not in seen]
        seen.update(buckets[node])
    return Alignment(*(tuple(lists[kind]) for kind in ("aligned", "unaligned", "no_affinity")))
