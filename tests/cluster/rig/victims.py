"""Parts of a cluster that are killed while devices are allocated or claims served, and started again."""

from __future__ import annotations

import signal

from tests.cluster.rig.agent import NodeAgent
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode

VICTIMS = ("agent", "kubelet", "containerd", "api")


def kill(victim: str, cluster: RigCluster, node: RigNode, agent: NodeAgent) -> None:
    """Kill one part, and start it again."""
    if victim == "agent":
        agent.stop(signal.SIGKILL)
        agent.start()
    elif victim == "kubelet":
        node.stop_kubelet(signal.SIGKILL)
        node.start_kubelet()
    elif victim == "containerd":
        node.stop_containerd(signal.SIGKILL)
        node.start_containerd()
    else:
        cluster.control_plane.stop_api_server()
        cluster.control_plane.start_api_server()
