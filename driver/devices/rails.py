"""Rails: the number of the network that each NIC beside a GPU is at, and of the GPUs that it serves.

Pure. A cluster that is built in rails connects the NICs of one number on all nodes to the same leaf switches, so pods
that talk to each other want NICs of one rail. The number follows the order of the GPUs, which is the same on all nodes
of a model: the NICs below the switch of the first GPUs come first, and those of one switch in the order in which
``ostler topology`` has them.

NICs without an RDMA device, and those without a GPU below the same switch (management, storage), are at no rail. A
group of GPUs that has lost a NIC leaves the numbers of the others alone: every group has as many as the largest one.

A GPU has the number of the NIC that it pairs with: of two GPUs and two NICs below one switch, the second ones pair with
each other, so that a claim which matches the rail of a GPU and a NIC gets exactly this pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.topology.model import Place


def rails(places: Iterable[Place], switches: Mapping[str, str]) -> Mapping[str, int]:
    """The rails of NICs and GPUs, by name; ``switches``: the switch that each device has in common with others."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for place in places:
        switch = switches.get(place.name)
        if switch is not None and (place.gpu or place.rdma):
            gpus, nics = groups.setdefault(switch, ([], []))
            (gpus if place.gpu else nics).append(place.name)
    # Places are in the order of their labels, so groups without GPUs are left out, and the others are in that of these.
    with_gpus = [(gpus, nics) for gpus, nics in groups.values() if gpus]
    widest = max((len(nics) for _, nics in with_gpus), default=0)
    found: dict[str, int] = {}
    for number, (gpus, nics) in enumerate(with_gpus):
        found |= {nic: number * widest + position for position, nic in enumerate(nics)}
        for position, gpu in enumerate(gpus if nics else ()):
            found[gpu] = number * widest + position * len(nics) // len(gpus)
    return found
