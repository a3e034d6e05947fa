"""The peer of the benchmarks of pods and of many agents: a DRA driver in Go on Kubernetes' library, built and started.

``go/`` has its source. It is built once per content, like the cluster's components. It does no less for a claim than a
driver must: a CDI file, and a record that survives a power cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.cluster.components.build import build_module
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import Inside
from tests.making.cache import cached, digest

SOURCES = Path(__file__).parent / "go"
PEER = "peer.bench.ostler.dev"
"""The driver's name, which is also that of its DeviceClass."""


def go_driver() -> Path:
    """The binary; a minute on 2 cores when it must be built."""
    files = {file.name: file.read_bytes() for file in sorted(SOURCES.iterdir())}

    def make(folder: Path) -> None:
        build_module("the Go driver", files, folder, ["build", "-ldflags", "-s -w", "-o", "bin/go-driver", "."])

    return cached(f"components/go-driver-{digest(*files.values())}", make) / "bin" / "go-driver"


def start_go_driver(node: RigNode, devices: int, paths: Sequence[str]) -> Inside:
    """Start it on the node with so many devices, of which each gives a container these device files."""
    return node.spawn(
        "go-driver", go_driver(),
        "--name", PEER,
        "--node", node.name,
        "--kubeconfig", node.folder / "kubelet.kubeconfig",
        "--devices", str(devices),
        "--nodes", ",".join(paths),
        "--records", node.folder / "lib-go-driver",
    )  # fmt: skip
