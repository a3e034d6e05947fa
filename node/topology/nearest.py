"""Which NICs go with GPUs that are given already: one near each, the nearest first.

Pure. Distances in a PCIe tree are an ultrametric, so taking the nearest pair again and again gives the least total
distance there can be. Where fewer NICs are wanted than there are GPUs, those that are near most of them win, which
spreads them over the sockets; where more are wanted, every GPU gets a second one before any gets a third.
"""

from __future__ import annotations

from collections.abc import Sequence


def nearest(ranks: Sequence[Sequence[int]], free: Sequence[int], required: Sequence[int], size: int) -> list[int]:
    """How many units to take of each NIC: ``size`` in all, ``required`` among them.

    ``ranks``: for every GPU the distance to every NIC (``Proximity.rank``), at least one GPU. ``free`` counts the
    required ones, too. On equal terms a NIC that is not taken from yet wins, then the one with fewest free units, then
    the first. Raises ``ValueError`` where ``size`` is more than is free or less than is required.
    """
    if not sum(required) <= size <= sum(free):
        raise ValueError(f"{size} units of {sum(free)} free ones, {sum(required)} of them required, cannot be")
    picks = [0] * len(free)
    unserved: list[int] = []
    for step in range(size):
        if not unserved:
            unserved = list(range(len(ranks)))
        # What is required is taken in any case; taken first, the GPUs near it count as served.
        limit = required if step < sum(required) else free
        nic = min(
            (nic for nic in range(len(free)) if picks[nic] < limit[nic]),
            key=lambda nic: (
                min(ranks[gpu][nic] for gpu in unserved),
                sum(ranks[gpu][nic] for gpu in unserved),
                picks[nic] > 0,
                free[nic],
                nic,
            ),
        )
        picks[nic] += 1
        unserved.remove(min(unserved, key=lambda gpu: (ranks[gpu][nic], gpu)))
    return picks
