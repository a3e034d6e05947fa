"""How GetPreferredAllocation decides (``python -m bench.placement``): pods without an island, time of a decision.

A run is 200 steps on an empty node of eight GPUs. In every step the next pod is drawn: 1, 2 or 4 GPUs at 60:30:10. A
coin decides whether it is admitted or, instead, a random running pod ends; where the pod does not fit, a running one
ends in any case. An island is an aligned block of 2 or 4 GPUs. Runs are seeded by their numbers, and policies that draw
have a source of their own, so that all of them see the same pods. A policy gets the free GPUs' numbers, sorted, and a
size.

With peers' policies this gives the shares that others have measured on such a node: 88 % for the kubelet alone, 48 %
for the lowest index, 16 % where links count for several GPUs only. What is left with ours are mostly holes that only
moving a running pod could close.

The time of a decision is measured without gRPC, by random requests on the nodes that are worst for it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from random import Random

from bench.figures import percentile
from node.inventory.model import Device, DeviceKind
from node.offer import OfferedDevice
from node.topology.cells import topology_of
from node.topology.model import Place, Topology
from node.topology.packing import Scores, pair_scores
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
GPUS = 8
PER_SOCKET = 4
Policy = Callable[[Sequence[int], int, Random], Sequence[int]]
RUNS = 300
STEPS = 200
SIZES = (1, 2, 4)
WEIGHTS = (60, 30, 10)
REQUESTS = 2000


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


def no_preference(free: Sequence[int], size: int, random: Random) -> Sequence[int]:
    """The kubelet alone: it takes members of a Go set, whose order is random."""
    return random.sample(free, size)


def lowest_index(free: Sequence[int], size: int, _random: Random) -> Sequence[int]:
    """The first free ones."""
    return free[:size]


def link_aware(topology: Topology) -> Policy:
    """The best sum of pair scores for several GPUs, as peers do; a single one is spread to the emptier socket."""
    scores = pair_scores(topology.places)

    def policy(free: Sequence[int], size: int, random: Random) -> Sequence[int]:
        if size > 1:
            return max(combinations(free, size), key=lambda chosen: _score(scores, chosen))
        sockets = [gpu // PER_SOCKET for gpu in free]
        most = max(map(sockets.count, sockets))
        return [random.choice([gpu for gpu in free if sockets.count(gpu // PER_SOCKET) == most])]

    return policy


def ostler(topology: Topology) -> Policy:
    """What the agent answers, asked as the kubelet asks: in the random order of a set."""
    preference = preference_of(topology)
    numbers = {place.name: number for number, place in enumerate(topology.places)}
    names = {number: name for name, number in numbers.items()}

    def policy(free: Sequence[int], size: int, random: Random) -> Sequence[int]:
        available = [names[gpu] for gpu in random.sample(free, len(free))]
        return [numbers[name] for name in preference.prefer(available, [], size)]

    return policy


def policies() -> dict[str, Policy]:
    """All of them by name, on an eight-GPU node with cells of 1, 2, 4 and 8."""
    topology = switched(GPUS)
    return {
        "no preference (random)": no_preference,
        "lowest index": lowest_index,
        "link-aware, singles spread": link_aware(topology),
        "ostler": ostler(topology),
    }


def _score(scores: Scores, chosen: Sequence[int]) -> int:
    return sum(scores[a][b] for a, b in combinations(chosen, 2))


def unaligned_ratio(policy: Policy, runs: int = RUNS) -> float:
    """Unaligned multi-GPU pods by all multi-GPU pods."""
    unaligned = total = 0
    for seed in range(runs):
        bad, admitted = _run(policy, Random(seed), Random(RUNS + seed))
        unaligned += bad
        total += admitted
    return unaligned / total


def _run(policy: Policy, random: Random, own: Random) -> tuple[int, int]:
    """Unaligned ones and all of the multi-GPU pods of one run."""
    free, pods = list(range(GPUS)), list[list[int]]()
    unaligned = total = 0
    for _ in range(STEPS):
        size = random.choices(SIZES, WEIGHTS)[0]
        if pods and (size > len(free) or random.random() < 0.5):
            free = sorted(free + pods.pop(random.randrange(len(pods))))
            continue
        gpus = sorted(policy(free, size, own))
        free = [gpu for gpu in free if gpu not in gpus]
        pods.append(gpus)
        if size > 1:
            total += 1
            unaligned += gpus[0] % size > 0 or gpus[-1] - gpus[0] >= size
    return unaligned, total


NODES = {8: (switched(8), cube_mesh(), flat(8)), 16: (switched(16), two_cube_meshes(), flat(16))}


def decision_p99(gpus: int, requests: int = REQUESTS) -> float:
    """Seconds, of the slowest node with so many GPUs (8 or 16)."""
    return max(percentile(decisions(topology, requests), 99) for topology in NODES[gpus])


def decisions(topology: Topology, requests: int, seed: int = 0) -> list[float]:
    """Latencies: any GPUs free, any size, in one request of four some are required."""
    preference = preference_of(topology)
    names = [place.name for place in topology.places]
    random = Random(seed)
    latencies = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(requests):
            available = random.sample(names, random.randint(1, len(names)))
            size = random.randint(1, len(available))
            required = available[: random.randint(0, size)] if random.random() < 0.25 else []
            began = time.perf_counter()
            preference.prefer(available, required, size)
            latencies.append(time.perf_counter() - began)
    finally:
        gc.enable()
    return latencies


def figures(*, quick: bool = False) -> dict[str, float]:
    """``placement_unaligned_ratio`` (always the full simulation: it is seeded, some seconds) and decision times."""
    requests = REQUESTS // 10 if quick else REQUESTS
    return {
        "placement_unaligned_ratio": unaligned_ratio(policies()["ostler"]),
        "preferred_8_p99_s": decision_p99(8, requests),
        "preferred_16_p99_s": decision_p99(16, requests),
    }


def report(runs: int = RUNS, requests: int = REQUESTS) -> str:
    """What ``python -m bench.placement`` prints."""
    lines = ["multi-GPU pods that get no island, on a node of 8 GPUs:"]
    lines += [f"  {name:<28}{unaligned_ratio(policy, runs):7.1%}" for name, policy in policies().items()]
    lines.append("decision, 99th percentile:")
    lines += [f"  {f'{gpus} GPUs':<28}{decision_p99(gpus, requests) * 1e3:7.3f} ms" for gpus in (8, 16)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
