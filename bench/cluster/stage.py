"""One node with the agent, the bare plugin and the Go driver side by side, and pods that ask for a device.

The agent replays a node of 128 GPUs, because fifty pods at once need fifty devices: 64 for each of its doors. The bare
plugin and the Go driver have as many, and give a pod as many device nodes, so that scheduler and runtime have the same
work.

Every node may read every claim here. A node's identity may read a claim only once the API server's authorizer has
learned that a pod of the node uses it, which takes a moment; a kubelet that asks too early waits ten seconds before it
tries again. With many pods at once that would be most of what is measured.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.cluster.figures import CLAIM, FLOOR, OSTLER, PEER_CLAIM, PLAIN
from bench.cluster.go_driver import PEER, go_driver, start_go_driver
from bench.floor import RESOURCE
from bench.recording import gpu_uuid, many_gpus
from tests.cluster.dra.claims import (
    CLASSES,
    DRIVER,
    GPU_CLASS,
    SLICES,
    Claims,
    devices,
    published,
    request,
    template,
    user,
)
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.pods import simple
from tests.cluster.rig.processes import Inside

DEVICES = 64
OURS = "nvidia.com/gpu"
RESOURCES: dict[str, dict[str, int]] = {PLAIN: {}, OSTLER: {OURS: 1}, FLOOR: {RESOURCE: 1}}
PLUGINS = "/var/lib/kubelet/device-plugins"
CLASS_OF = {DRIVER: GPU_CLASS, PEER: PEER}
TEMPLATES = {CLAIM: "one-gpu", PEER_CLAIM: "one-of-the-peer"}
READERS = "nodes-read-claims"


@dataclass(frozen=True, slots=True)
class BenchStage:
    """What is measured on."""

    cluster: RigCluster
    node: RigNode
    agent: NodeAgent
    floor: Inside


@contextlib.contextmanager
def stage(version: str = "", *, traced: bool = False, peer: bool = True) -> Iterator[BenchStage]:
    """A new cluster, both plugins and the Go driver registered; it is gone afterwards.

    ``traced``: see ``up``; ``peer``: with the Go driver, and templates of claims for both drivers.
    """
    name = name_of_run()
    if peer:
        go_driver()
    try:
        cluster = up(name, version, traced=traced)
        node = cluster.nodes[0]
        let_nodes_read_claims(cluster.api)
        agent = NodeAgent(node, _document(node, traced=traced)).start()
        offered = [device_nodes(device) for device in agent.offered(OURS).values()]
        node.make_devices(*(f"/dev/nvidia{index}" for index in range(2 * DEVICES)), "/dev/nvidiactl")
        ids = ",".join(f"floor-{index}" for index in range(DEVICES))
        bare = [sys.executable, "-m", "bench.floor", PLUGINS, ids, ",".join(offered[0])]
        floor = node.spawn("floor", *bare)
        for resource in (OURS, RESOURCE):
            wait_allocatable(cluster.api, node, resource, DEVICES)
        if peer:
            _offer_claims(cluster.api, start_go_driver(node, DEVICES, offered[0]))
        yield BenchStage(cluster, node, agent, floor)
    finally:
        down(name)


def _offer_claims(api: RigApi, peer: Inside) -> None:
    """A class and a template for each driver; ``peer``: the Go driver."""
    for (driver, class_), template_name in zip(CLASS_OF.items(), TEMPLATES.values(), strict=True):
        api.create(CLASSES, _class(class_, driver))
        Claims(api).create(template(template_name, devices(request(class_))))
        _wait_devices(api, driver, peer)


def _document(node: RigNode, *, traced: bool) -> Object:
    """A rule for each door; the first one names its GPUs, so that none can ever be at both."""
    return {
        **configuration("", kubernetes={"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "events": "off"}),
        "log": {"level": "debug" if traced else "info"},
        "inventory": {"recorded": str(many_gpus(node.folder / "gpus.yaml", 2 * DEVICES))},
        "resources": [
            {"name": OURS, "devices": {"kind": "gpu", "uuid": [gpu_uuid(index) for index in range(DEVICES)]}},
            {"name": "ostler.dev/claimed-gpu", "door": "dra", "devices": {"kind": "gpu"}},
        ],
    }


def _class(name: str, driver: str) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }


def _wait_devices(api: RigApi, driver: str, peer: Inside) -> None:
    """Return when the driver's devices are published."""

    def are_published(found: Object) -> bool:
        return len(published(found["items"])) == DEVICES

    api.wait(f"{SLICES}?fieldSelector=spec.driver={driver}", "has all devices", are_published, hopeless=peer.died)


def let_nodes_read_claims(api: RigApi) -> None:
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
    name = f"{kind.replace('_', '-')}-{number}"
    if kind in TEMPLATES:
        return user(name, own=TEMPLATES[kind])
    return simple(name, resources=RESOURCES[kind])
