"""One node with the agent and the bare plugin side by side, and pods that ask for a device.

The agent replays a node of 128 GPUs, because fifty pods at once need fifty devices: 64 for each of its doors. The bare
plugin gives as many device nodes a pod, so that the container runtime has the same work.

Every node may read every claim here. A node's identity may read a claim only once the API server's authorizer has
learned that a pod of the node uses it, which takes a moment; a kubelet that asks too early waits ten seconds before it
tries again. With many pods at once that would be most of what is measured.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.cluster.figures import CLAIM, FLOOR, OSTLER, PLAIN
from bench.floor import RESOURCE
from bench.recording import gpu_uuid, many_gpus
from tests.cluster.dra.claims import CLASSES, DRIVER, GPU_CLASS, Claims, template, user
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import Api, Object
from tests.cluster.rig.cluster import Cluster, down, up
from tests.cluster.rig.node import Node
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.pods import simple
from tests.cluster.rig.processes import Inside

DEVICES = 64
OURS = "nvidia.com/gpu"
RESOURCES: dict[str, dict[str, int]] = {PLAIN: {}, OSTLER: {OURS: 1}, FLOOR: {RESOURCE: 1}}
PLUGINS = "/var/lib/kubelet/device-plugins"
TEMPLATE = "one-gpu"
CLAIMED: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": GPU_CLASS},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
READERS = "nodes-read-claims"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is measured on."""

    cluster: Cluster
    node: Node
    agent: NodeAgent
    floor: Inside


@contextlib.contextmanager
def stage(version: str = "") -> Iterator[Stage]:
    """A new cluster, both plugins registered; it is gone afterwards."""
    name = name_of_run()
    try:
        cluster = up(name, version)
        node = cluster.nodes[0]
        let_nodes_read_claims(cluster.api)
        agent = NodeAgent(node, _document(node)).start()
        offered = [device_nodes(device) for device in agent.offered(OURS).values()]
        node.make_devices(*(f"/dev/nvidia{index}" for index in range(2 * DEVICES)), "/dev/nvidiactl")
        ids = ",".join(f"floor-{index}" for index in range(DEVICES))
        bare = [sys.executable, "-m", "bench.floor", PLUGINS, ids, ",".join(offered[0])]
        floor = node.spawn("floor", *bare)
        for resource in (OURS, RESOURCE):
            wait_allocatable(cluster.api, node, resource, DEVICES)
        cluster.api.create(CLASSES, CLAIMED)
        claims = Claims(cluster.api)
        claims.create(template(TEMPLATE))
        claims.wait_slices(DEVICES)
        yield Stage(cluster, node, agent, floor)
    finally:
        down(name)


def _document(node: Node) -> Object:
    """A rule for each door; the first one names its GPUs, so that none can ever be at both."""
    return {
        **configuration("", kubernetes={"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "events": "off"}),
        "inventory": {"recorded": str(many_gpus(node.folder / "gpus.yaml", 2 * DEVICES))},
        "resources": [
            {"name": OURS, "devices": {"kind": "gpu", "uuid": [gpu_uuid(index) for index in range(DEVICES)]}},
            {"name": "ostler.dev/claimed-gpu", "door": "dra", "devices": {"kind": "gpu"}},
        ],
    }


def let_nodes_read_claims(api: Api) -> None:
    """For benchmarks only, see above."""
    group = "rbac.authorization.k8s.io"
    rights = [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list", "watch"]}]
    api.create(
        f"/apis/{group}/v1/clusterroles",
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": READERS}, "rules": rights},
    )
    api.create(
        f"/apis/{group}/v1/clusterrolebindings",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": READERS},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READERS},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
        },
    )


def device_nodes(device: Object) -> list[str]:
    """The device files that a pod gets with a device."""
    return [str(entry["path"]) for entry in device["nodes"]]


def manifest(kind: str, number: int) -> Object:
    """Pod ``number`` of a kind."""
    if kind == CLAIM:
        return user(f"{kind}-{number}", own=TEMPLATE)
    return simple(f"{kind}-{number}", resources=RESOURCES[kind])
