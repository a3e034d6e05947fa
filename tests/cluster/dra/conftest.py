"""Classes, claims and an agent whose DRA door is open, on the cluster of this worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from tests.cluster.conftest import RunAgent
from tests.cluster.dra.claims import CLAIMS, Claims
from tests.cluster.dra.classes import apply_classes, remove_classes
from tests.cluster.rig.agent import OSTLER, NodeAgent, configuration
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until

GPU = "nvidia.com/gpu"
GPUS: Object = {"name": GPU, "door": "dra", "devices": {"kind": "gpu"}}


class RunDriver(Protocol):
    """Makes an agent with the DRA door and this node's own identity, started unless told otherwise."""

    def __call__(
        self,
        recorded: str,
        *resources: Object,
        start: bool = True,
        name: str = "ostler",
        program: tuple[str, ...] = OSTLER,
        **sections: Any,
    ) -> NodeAgent: ...


@pytest.fixture(scope="module")
def classes(cluster: RigCluster) -> Iterator[None]:
    """The chart's device classes; gone after the file's tests: Helm installs nothing over what is not its own."""
    apply_classes(cluster)
    yield
    remove_classes(cluster)


@pytest.fixture
def claims(api: RigApi, classes: None, pods: RigPods, node: RigNode, run_agent: RunAgent) -> Iterator[Claims]:
    """The default namespace's claims; none is left when the agents end, nor a pod that uses one.

    Slices of an agent before are not there either: a scheduler that has lost sight of the API server for a moment would
    go on allocating their devices.
    """
    made = Claims(api)
    made.delete_slices()
    yield made

    def nothing_is_left() -> bool:
        pods.delete_all()
        # A pod deleted without grace is forgotten by the API server before the kubelet has released its claims.
        wait_until("the kubelet has cleaned up", lambda: not pods.on_disk(node))
        made.delete_all()
        # A controller that has not heard yet of its owner's end makes one more pod, for which a claim is made.
        return not pods.all() and not api.items(CLAIMS)

    wait_until("neither a pod nor a claim is left", nothing_is_left)


@pytest.fixture
def run_driver(run_agent: RunAgent, node: RigNode) -> RunDriver:
    """Starts agents that offer their GPUs by claims, unless other resources are given."""

    def run(
        recorded: str,
        *resources: Object,
        start: bool = True,
        name: str = "ostler",
        program: tuple[str, ...] = OSTLER,
        **sections: Any,
    ) -> NodeAgent:
        kubernetes = {"kubeconfig": str(node.folder / "kubelet.kubeconfig"), "events": "off"}
        document = configuration(recorded, *(resources or (GPUS,)), **{"kubernetes": kubernetes, **sections})
        return run_agent(document, name, start=start, program=program)

    return run


@dataclass(frozen=True, slots=True)
class DraStage:
    """What tests of faults need together."""

    cluster: RigCluster
    node: RigNode
    claims: Claims
    pods: RigPods
    run_driver: RunDriver


@pytest.fixture
def stage(cluster: RigCluster, node: RigNode, claims: Claims, pods: RigPods, run_driver: RunDriver) -> DraStage:
    """All of it."""
    return DraStage(cluster, node, claims, pods, run_driver)


@pytest.fixture
def lists_claims(cluster: RigCluster) -> Iterator[None]:
    """Nodes may list claims, as docs/systemd.md has it for devices that go back to the device plugin door."""
    name, kinds = "ostler-claims", ("clusterrolebinding", "clusterrole")
    cluster.kubectl("create", "clusterrole", name, "--verb=list", "--resource=resourceclaims.resource.k8s.io")
    cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--group=system:nodes")
    yield
    for kind in kinds:
        cluster.kubectl("delete", kind, name)
