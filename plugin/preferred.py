"""Which devices to prefer: a pure, deterministic choice that never fails.

The kubelet takes the answer as advice and turns an error into a refused pod, so odd requests (a size below the number
of required devices, too few available, unknown ids) get the best answer there is. Order of preference: what must be
included, then the NUMA node that already has most of it, then the node that holds the rest most tightly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node.offer import OfferedDevice


def prefer(
    devices: Mapping[str, OfferedDevice], available: Sequence[str], required: Sequence[str], size: int
) -> list[str]:
    """``size`` ids out of ``available``, those of ``required`` first; fewer when there are not enough.

    Healthy known devices come before others, and on equal terms the order of the snapshot decides.
    """
    order = {id_: place for place, id_ in enumerate(devices)}
    chosen = list(dict.fromkeys(required))[: max(size, 0)]
    left = sorted(
        set(available) - set(chosen),
        key=lambda id_: (id_ not in devices or not devices[id_].healthy, order.get(id_, len(order)), id_),
    )
    while len(chosen) < size and left:
        node = _best_node(devices, chosen, left, size - len(chosen))
        here = [id_ for id_ in left if _node(devices, id_) == node][: size - len(chosen)]
        chosen += here
        taken = set(here)
        left = [id_ for id_ in left if id_ not in taken]
    return chosen


def _node(devices: Mapping[str, OfferedDevice], id_: str) -> int | None:
    return devices[id_].device.numa_node if id_ in devices else None


def _best_node(devices: Mapping[str, OfferedDevice], chosen: list[str], left: list[str], needed: int) -> int | None:
    """The NUMA node to take from next: with most devices chosen already, then fitting, tight, and low in number."""

    def rank(node: int | None) -> tuple[int, bool, int, int]:
        here = [id_ for id_ in left if _node(devices, id_) == node]
        usable = sum(1 for id_ in here if id_ in devices and devices[id_].healthy)
        taken = sum(1 for id_ in chosen if id_ in devices and _node(devices, id_) == node)
        fits = usable >= needed
        # Among nodes that fit, the one with least left over; among those that do not, the one that gives most.
        return (-taken, not fits, usable if fits else -usable, -1 if node is None else node)

    return min({_node(devices, id_) for id_ in left}, key=rank)
