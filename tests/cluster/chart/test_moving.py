"""A node whose resource moves from the device plugin door to claims and back, by the words of the page on that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.generate import NAMESPACE
from tests.cluster.chart.release import Release
from tests.cluster.components.versions import has_dra_gates
from tests.cluster.door.container import STAY
from tests.cluster.dra.claims import Claims, allocated, template, user
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.cluster import Cluster
from tests.cluster.rig.node import Node
from tests.cluster.rig.pods import Pods, simple
from tests.cluster.rig.processes import wait_until
from tests.docs.markdown import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]  # the first test may have to build the image

GPU = "nvidia.com/gpu"
RECORDING = "l4-2"
LABEL = "ostler.dev/door"


def values_of_the_page() -> tuple[Any, Any]:
    """What the page gives the release that is there, and the second one."""
    text = (ROOT / "docs" / "moving-to-dra.md").read_text()
    section = text[text.index("## Node by node, with the chart") :]
    stays, moves = re.findall(r"^ *```yaml[^\n]*\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)[:2]
    return yaml.safe_load(stays), yaml.safe_load(moves)


@pytest.fixture
def claims(cluster: Cluster, release: Release, node: Node, pods: Pods) -> Iterator[Claims]:
    """Claims of the default namespace; they are released while agents still run, and the Node is as before."""
    made = Claims(cluster.api)
    yield made
    cluster.kubectl("uncordon", node.name)
    agents = {pod["metadata"]["uid"] for pod in release.agents()}
    pods.delete_all()
    wait_until("the kubelet has cleaned up", lambda: set(pods.on_disk(node)) <= agents)
    made.delete_all()
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")


@pytest.fixture
def moved_nodes(cluster: Cluster, release: Release) -> Iterator[Release]:
    """The release of moved nodes, which is not installed yet."""
    made = Release(cluster, "ostler-dra")
    yield made
    made.uninstall()


def test_a_node_is_moved_and_moved_back(
    cluster: Cluster, release: Release, moved_nodes: Release, pods: Pods, claims: Claims
) -> None:
    node = cluster.nodes[0]
    stays, moves = values_of_the_page()
    release.install(RECORDING, stays)
    moved_nodes.install(RECORDING, moves)
    api = cluster.api
    wait_allocatable(api, node, GPU, 2)
    assert moved_nodes.own_agents() == []
    pods.run(simple("before", STAY, {GPU: 1}))

    cluster.kubectl("cordon", node.name)
    cluster.kubectl("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    cluster.kubectl("label", "node", node.name, f"{LABEL}=dra")
    wait_until("the node has the agent of the other release", lambda: len(moved_nodes.own_agents()) == 1)
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset/ostler-dra", "--timeout=60s")
    claims.wait_slices(2)
    wait_allocatable(api, node, GPU, 0)
    cluster.kubectl("uncordon", node.name)
    claims.create(template("one"))
    by_claim = pods.run(user("by-claim", STAY, own="one"))
    assert len(allocated(claims.of_pod(by_claim))) == 1
    if has_dra_gates(cluster.version):
        pods.run(simple("as-before", STAY, {GPU: 1}))
        assert len(moved_nodes.ask("claims")["claims"]) == 2

    # And back: emptied of pods with claims this time.
    cluster.kubectl("cordon", node.name)
    cluster.kubectl("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    wait_until("nothing is held", lambda: moved_nodes.ask("claims").get("claims", []) == [])
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")
    wait_allocatable(api, node, GPU, 2)
    cluster.kubectl("uncordon", node.name)
    pods.run(simple("after", STAY, {GPU: 2}))
    wait_until("the kubelet has wiped the slices", lambda: claims.slices() == [], timeout=90)
