"""What the versions of Kubernetes differ in by default; the table of docs/dra.md has the same."""

from __future__ import annotations

from tests.cluster.rig.cluster import Cluster

GATES_ON = "1.36"
"""First version in which taints of devices, extended resources of classes and the health of devices are on."""


def everything_is_on(cluster: Cluster) -> bool:
    """Whether they are in this cluster."""
    return release(cluster.version) >= release(GATES_ON)


def release(version: str) -> tuple[int, ...]:
    """Major and minor number."""
    return tuple(int(part) for part in version.split(".")[:2])
