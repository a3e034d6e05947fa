"""The structured allocator: small claims, a thousand nodes, and the searches that are exponential upstream.

Nodes have eight GPUs each. What the same asks of Kubernetes' own allocator, in Go, stands in docs/performance.md.

`ostler explain` is measured as a person runs it, as a process on 1,000 nodes and on 5,000. Nothing fits, so it examines
every node and gives its reason. One node differs from all others, so that there are two reasons.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import SliceIndex, gather_pools
from scheduling.allocator.reading import AllocationError
from tests.judge.our_allocation import allocator as allocator_of

Json = dict[str, Any]

NODES, MANY_NODES = 1000, 5000
GPUS = 8
SLOW = Path(__file__).parents[1] / "tests" / "vectors" / "allocator" / "slow.jsonl"
DRIVER = "gpu.example.com"
CLASSES: dict[str, Json] = {
    "gpu": {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }
}
H100 = f'device.attributes["{DRIVER}"].model == "H100"'


def figures(*, quick: bool) -> dict[str, float]:
    """The figures by name, each the best of several runs: what is measured is the work, not the machine's noise."""
    rounds = 3 if quick else 10
    one = [gpu_slice("node-0", "H100")]
    many = slices_of(NODES)
    nodes = [node(f"node-{number}") for number in range(NODES)]
    index = SliceIndex(many)
    for each in nodes:
        gather_pools(each, index)
    return {
        "allocator_one_node_8_s": best(rounds, lambda: fits(claim(8), SliceIndex(one), nodes[:1], "node-0")),
        "allocator_match_4_of_8_s": best(rounds, lambda: fits(matching(4), SliceIndex(one), nodes[:1], "node-0")),
        "allocator_1000_nodes_first_fit_last_s": best(
            rounds, lambda: fits(claim(1, H100), index, nodes, f"node-{NODES - 1}")
        ),
        "gather_1000_nodes_s": best(rounds, lambda: gathered(many, nodes)),
        "allocator_slow_worst_s": max(best(rounds, partial(answered, case)) for case in slow_cases()),
    }


def best(rounds: int, work: Callable[[], None]) -> float:
    """The shortest of some runs, in seconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def fits(wanted: Json, slices: SliceIndex, nodes: list[Json], expected: str) -> None:
    """Ask node after node until the claim fits. Raises ``ValueError`` if that is not where it must."""
    allocator = Allocator([wanted], AllocatedState(), CLASSES, slices)
    found = next((each["metadata"]["name"] for each in nodes if allocator.allocate(each) is not None), None)
    if found != expected:
        raise ValueError(f"the claim fits first on {found} and not on {expected}")


def gathered(slices: list[Json], nodes: list[Json]) -> None:
    """Read all slices and gather the pools of all nodes."""
    index = SliceIndex(slices)
    if any(len(gather_pools(each, index)) != 1 for each in nodes):
        raise ValueError("a node does not have exactly one pool")


def slow_cases() -> list[Json]:
    """The searches of ``slow.jsonl`` whose answer is known."""
    return [case for case in map(json.loads, SLOW.read_text().splitlines()) if "expect" in case]


def answered(case: Json) -> None:
    """One of those searches; that its answer is right is for the tests to say."""
    try:
        allocator_of(case).allocate(case["node"])
    except AllocationError as error:
        if case["expect"]["errorKind"] is None:
            raise ValueError(f"{case['name']}: {error}") from error


def slices_of(nodes: int) -> list[Json]:
    """Slices of a cluster where only the last node has the wanted model."""
    return [gpu_slice(f"node-{number}", "H100" if number == nodes - 1 else "A100") for number in range(nodes)]


def gpu_slice(name: str, model: str) -> Json:
    """The slice of a node: eight GPUs, four to an island."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "model": {"string": model},
                "uuid": {"string": f"GPU-{name}-{number}"},
                "island": {"int": number // 4},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(GPUS)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpu"},
        "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
    }


def node(name: str) -> Json:
    """A node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    }


def claim(count: int, selector: str = "") -> Json:
    """A claim for so many GPUs."""
    exactly: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


def matching(count: int) -> Json:
    """A claim for so many GPUs of one island, with the first GPU's island one short of it."""
    made = claim(count, f'device.attributes["{DRIVER}"].uuid != "GPU-node-0-1"')
    made["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/island"}]
    return made


WANTED = 'device.attributes["gpu.example.com"].model == "H200"'


def explanation_figures(root: Path, *, quick: bool) -> dict[str, float]:
    """Time on both clusters and memory on the larger, the best of several runs.

    Raises ``ValueError`` if the answer is another.
    """
    root.mkdir(parents=True)
    return {
        "explain_1000_nodes_s": explained(root, NODES, 2 if quick else 5)[0],
        **dict(
            zip(
                ("explain_5000_nodes_s", "explain_5000_nodes_rss_bytes"),
                explained(root, MANY_NODES, 1 if quick else 2),
                strict=True,
            )
        ),
    }


def objects(nodes: int) -> list[Json]:
    """Everything that the answer needs."""
    classes = [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **each} for each in CLASSES.values()]
    return [*classes, *(node(f"node-{number}") for number in range(nodes)), *slices_of(nodes), claim(1, WANTED)]


def explained(root: Path, nodes: int, runs: int) -> tuple[float, float]:
    """The shortest time and the least memory of some runs on a cluster of so many nodes, none of which fits."""
    cluster = root / f"{nodes}.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(nodes)}))
    command = ["explain", "claim/gpus", "--from", str(cluster)]
    return least(runs, lambda: ended(command, f"none of {nodes} nodes", code=1))


def least(runs: int, work: Callable[[], resource.struct_rusage]) -> tuple[float, float]:
    """The shortest time in seconds and the least memory in bytes of some runs of a process."""
    times, sizes = [], []
    for _ in range(runs):
        began = time.perf_counter()
        usage = work()
        times.append(time.perf_counter() - began)
        sizes.append(usage.ru_maxrss * 1024)
    return min(times), min(sizes)


def ended(command: Sequence[str], expected: str, code: int = 0) -> resource.struct_rusage:
    """Run ``ostler`` and give what it used. Raises ``ValueError`` for another exit code, or another answer."""
    with subprocess.Popen([sys.executable, "-m", "ostler", *command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code or expected not in said:
        raise ValueError(f"ostler {' '.join(command)} ended with {process.returncode}: {said}")
    return usage
