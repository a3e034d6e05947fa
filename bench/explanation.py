"""`ostler explain` on a thousand nodes, as a person runs it: a process, from its start to its last line.

Nothing fits: every node has to be looked at and has to have its reason. One node differs from all others, so that there
are two reasons to tell.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.allocation import CLASSES, NODES, Json, best, claim, node, thousand_nodes

WANTED = 'device.attributes["gpu.example.com"].model == "H200"'


def figures(root: Path, *, quick: bool) -> dict[str, float]:
    """``explain_1000_nodes_s``, the best of several runs. Raises ``ValueError`` if the answer is another."""
    root.mkdir(parents=True)
    cluster = root / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}))
    return {"explain_1000_nodes_s": best(2 if quick else 5, lambda: explained(cluster))}


def objects() -> list[Json]:
    """Everything that the answer needs."""
    classes = [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **each} for each in CLASSES.values()]
    nodes = [node(f"node-{number}") for number in range(NODES)]
    return [*classes, *nodes, *thousand_nodes(), claim(1, WANTED)]


def explained(cluster: Path) -> None:
    """Ask once; exit status 1 says that the claim fits nowhere."""
    command = [sys.executable, "-m", "ostler", "explain", "claim/gpus", "--from", str(cluster)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 1 or f"none of {NODES} nodes" not in done.stdout:
        raise ValueError(f"ostler explain ended with {done.returncode}: {done.stderr or done.stdout}")
