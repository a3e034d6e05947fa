"""How long a decision takes, without gRPC: random requests on the nodes that are worst for it."""

from __future__ import annotations

import gc
import time
from random import Random

from bench.figures import percentile
from bench.placement.nodes import cube_mesh, flat, preference_of, switched, two_cube_meshes
from node.topology.model import Topology

NODES = {8: (switched(8), cube_mesh(), flat(8)), 16: (switched(16), two_cube_meshes(), flat(16))}
REQUESTS = 2000


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
