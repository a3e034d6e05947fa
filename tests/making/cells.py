"""GPUs of nodes as slices publish them, configurations of cells, and pods that have some."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Body = dict[str, Any]
Command = Callable[..., tuple[str, str]]
"""Runs a command with words and an expected exit code; what it printed on both streams."""

SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"
BIND = "hivedscheduler.microsoft.com/pod-bind-info"

CONFIGURATION = """\
physicalCluster:
  cellTypes:
    H100-2: {childCellType: H100, childCellNumber: 2}
    H100-NODE-4: {childCellType: H100-2, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - {cellType: H100-NODE-4, cellAddress: node-1}
  - {cellType: H100-NODE-4, cellAddress: node-2, pinnedCellId: mine}
virtualClusters:
  A:
    virtualCells:
    - {cellType: H100-NODE-4.H100-2, cellNumber: 1}
  B:
    virtualCells:
    - {cellType: H100-NODE-4.H100-2, cellNumber: 1}
    pinnedCells:
    - {pinnedCellId: mine}
"""
"""Two nodes of four GPUs: A owns a pair, B a pair and the second node."""


def gpu(number: int, *, cells: Sequence[int] = (2, 4), product: str = "H100", **more: Any) -> Body:
    """A GPU of a node as ostler publishes it: ``cell2`` is its pair, and so on."""
    attributes: Body = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{number}"},
        "productName": {"string": product},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
        **{f"cell{size}": {"string": f"c{size}-{number // size}"} for size in cells},
        **more.pop("attributes", {}),
    }
    return {"name": f"gpu-{number}", "attributes": attributes, **more}


def tainted(number: int, key: str = "ostler.dev/health", value: str = "unhealthy", **more: Any) -> Body:
    """A GPU with a taint."""
    return gpu(number, taints=[{"key": key, "value": value, "effect": "NoSchedule"}], **more)


def slice_of(node: str, devices: Sequence[Body], *, driver: str = "ostler.dev", generation: int = 1) -> Body:
    """A node's slice."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-{generation}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)},
    }


def node_named(name: str, **labels: str) -> Body:
    """A node with labels; ``rack_id`` stands for ``rack.id``."""
    texts = {key.replace("_", "."): text for key, text in labels.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": texts}}


def written(folder: Path, *bodies: Body, name: str = "cluster.json") -> str:
    """A file with these objects."""
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)}))
    return str(path)


def pod(name: str, node: str = "", *indices: int, spec: Mapping[str, Any] | None = None) -> Body:
    """A pod of the scheduler of cells, bound where it has indices."""
    asked = {"virtualCluster": "A", "priority": 1, "leafCellNumber": max(1, len(indices)), **(spec or {})}
    annotations = {SPEC: json.dumps(asked)}
    if indices:
        info = {"node": node, "leafCellIsolation": list(indices), "cellChain": "H100-NODE-4"}
        types = ["H100-2"] * len(indices)
        place = {"physicalNode": node, "physicalLeafCellIndices": list(indices), "preassignedCellTypes": types}
        annotations[BIND] = json.dumps({**info, "affinityGroupBindInfo": [{"podPlacements": [place]}]})
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
