"""A node whose resource moves from the device plugin door to claims and back, by the words of the page on that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.chart.release import Release
from tests.cluster.components.versions import has_dra_gates
from tests.cluster.door.container import STAY
from tests.cluster.dra.claims import Claims, allocated, template, user
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import wait_until
from tests.docs.markdown import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]  # the first test may have to build the image

GPU = "nvidia.com/gpu"
RECORDING = "l4-2"
LABEL = "ostler.dev/door"


def values_of_the_page() -> Any:
    """What the page has the release upgraded with."""
    text = (ROOT / "docs" / "moving-to-dra.md").read_text()
    (values,) = re.findall(r"^ *```yaml file=dra.yaml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(values)


@pytest.fixture
def claims(cluster: RigCluster, release: Release, node: RigNode, pods: RigPods) -> Iterator[Claims]:
    """Claims of the default namespace; they are released while agents still run, and the Node is as before."""
    made = Claims(cluster.api)
    yield made
    cluster.kubectl("uncordon", node.name)
    agents = {pod["metadata"]["uid"] for pod in release.agents()}
    pods.delete_all()
    wait_until("the kubelet has cleaned up", lambda: set(pods.on_disk(node)) <= agents)
    made.delete_all()
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")


def test_a_node_is_moved_and_moved_back(cluster: RigCluster, release: Release, pods: RigPods, claims: Claims) -> None:
    node = cluster.nodes[0]
    values = values_of_the_page()
    values["dra"]["extendedResources"] = [GPU]
    release.install(RECORDING, values)
    api = cluster.api
    wait_allocatable(api, node, GPU, 2)
    pods.run(simple("before", STAY, {GPU: 1}))

    cluster.kubectl("cordon", node.name)
    cluster.kubectl("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    cluster.kubectl("label", "node", node.name, f"{LABEL}=dra")
    claims.wait_slices(2)
    wait_allocatable(api, node, GPU, 0)
    cluster.kubectl("uncordon", node.name)
    claims.create(template("one"))
    by_claim = pods.run(user("by-claim", STAY, own="one"))
    assert len(allocated(claims.of_pod(by_claim))) == 1
    if has_dra_gates(cluster.version):
        pods.run(simple("as-before", STAY, {GPU: 1}))
        assert len(release.ask("claims")["claims"]) == 2

    # And back: emptied of pods with claims this time.
    cluster.kubectl("cordon", node.name)
    cluster.kubectl("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    wait_until("nothing is held", lambda: release.ask("claims").get("claims", []) == [])
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")
    wait_allocatable(api, node, GPU, 2)
    cluster.kubectl("uncordon", node.name)
    pods.run(simple("after", STAY, {GPU: 2}))
    wait_until("no slice offers a device", lambda: not any(each["spec"].get("devices") for each in claims.slices()))
