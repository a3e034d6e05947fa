"""`ostler pools` and `ostler fit` on a snapshot of a thousand nodes with eight GPUs each, as a person runs them.

A quarter of the GPUs is in use, by claims of one to four devices; `ostler fit` places a thousand pods on the rest.
Time and memory are those of the whole process. ``python -m bench.pools`` measures this part alone.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.allocation import CLASSES, DRIVER, GPUS, NODES, ended, least, node
from bench.figures import significant

Json = dict[str, Any]
PODS = 1000
SIZES = (4, 0, 1, 2, 3, 2, 0, 4)
"""How many devices claims have on one node after the other."""


def figures(root: Path, *, quick: bool) -> dict[str, float]:
    """Time and memory of each command, the best of several runs. Raises ``ValueError`` if an answer is another."""
    root.mkdir(parents=True)
    cluster = root / "cluster.json"
    cluster.write_text(json.dumps(snapshot()))
    runs = 2 if quick else 5
    pods = root / "pods.json"
    pods.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted_pods()}))
    view = measured("pools_view", runs, lambda: viewed(cluster))
    return view | measured("fit", runs, lambda: fitted(cluster, pods))


def measured(name: str, runs: int, work: Callable[[], resource.struct_rusage]) -> dict[str, float]:
    """The shortest time and the least memory of some runs."""
    seconds, size = least(runs, work)
    return {f"{name}_1000_nodes_s": seconds, f"{name}_1000_nodes_rss_bytes": size}


def viewed(cluster: Path) -> resource.struct_rusage:
    """View all pools once."""
    in_use = sum(SIZES[number % len(SIZES)] for number in range(NODES))
    words = f"{NODES} nodes, {NODES} pools: {NODES * GPUS - in_use} of {NODES * GPUS} gpu "
    return ended(["pools", "view", "--from", str(cluster)], words)


def fitted(cluster: Path, pods: Path) -> resource.struct_rusage:
    """Place all pods once."""
    return ended(["fit", "-f", str(pods), "--from", str(cluster)], f"all {PODS} pods fit on ")


def snapshot() -> Json:
    """The cluster as ``ostler snapshot -o cluster.json`` writes it."""
    return {"apiVersion": "ostler.dev/v1alpha1", "kind": "Snapshot", "serverVersion": "v1.36.0", "items": objects()}


def objects() -> list[Json]:
    """Everything that decides allocations."""
    names = [f"node-{number:04d}" for number in range(NODES)]
    classes = [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **each} for each in CLASSES.values()]
    claims = [claim(name, size) for number, name in enumerate(names) if (size := SIZES[number % len(SIZES)])]
    return [*map(node, names), *classes, *map(gpu_slice, names), *claims]


def gpu_slice(name: str) -> Json:
    """The slice of a node, with the attributes that drivers publish for a GPU."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "architecture": {"string": "Hopper"},
                "driverVersion": {"version": "580.65.6"},
                "cudaComputeCapability": {"version": "9.0.0"},
                "uuid": {"string": f"GPU-{name}-{number}"},
                "minor": {"int": number},
                "numaNode": {"int": number // 4},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2:02x}"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{number + 16:02x}:00.0"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for number in range(GPUS)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpu", "uid": f"slice-{name}"},
        "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
    }


def claim(name: str, size: int) -> Json:
    """A claim with the first devices of a node, used by one pod."""
    results = [{"request": "gpus", "driver": DRIVER, "pool": name, "device": f"gpu-{each}"} for each in range(size)]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": size}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"train-{name}", "namespace": "team", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": f"train-{name}-0", "uid": f"uid-{name}"}],
        },
    }


def wanted_pods() -> list[Json]:
    """A workload of a thousand pods with a GPU each."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "team"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}},
    }
    spec = {
        "containers": [{"name": "main", "image": "train"}],
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one"}],
    }
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"replicas": PODS, "template": {"spec": spec}},
    }
    return [template, workload]


def main() -> None:
    """Measure, and show each figure."""
    with TemporaryDirectory() as folder:
        for name, value in figures(Path(folder) / "pools", quick=False).items():
            print(f"{name}: {significant(value)}")


if __name__ == "__main__":
    main()
