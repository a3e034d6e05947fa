"""What holders of devices are known by, against a real server: with the node's own identity, and with more rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.node_watch.node_doors import stripped as stripped_node
from driver.node_watch.node_doors import words_of
from driver.node_watch.pods import pod_of, stripped
from driver.node_watch.slice_features import asked
from driver.resource_api.client import ResourceApi
from kube.client import Client, RequestLimits
from kube.collection import read_whole
from kube.errors import Forbidden
from kube.kubeconfig import from_kubeconfig
from kube.reflector import Reflector
from node.door_policy import LABEL, NodeWords, Taints
from tests.cluster.rig.api import MERGE
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods, simple
from tests.kube.watched import Notes
from tests.waiting import until

DRIVER = "holders.test"


def api_of(kubeconfig: Path) -> ResourceApi:
    return ResourceApi(Client(from_kubeconfig(kubeconfig), random=lambda: 0.5, limits=RequestLimits(attempts=2)))


@pytest.fixture
def kubelet(node: RigNode) -> Iterator[ResourceApi]:
    """The API as the node's own identity."""
    api = api_of(node.folder / "kubelet.kubeconfig")
    yield api
    api.close()


@pytest.fixture
def administrator(cluster: RigCluster) -> Iterator[ResourceApi]:
    api = api_of(cluster.place.kubeconfig)
    yield api
    api.close()


def test_a_nodes_identity_lists_and_watches_its_own_pods_and_no_others(
    kubelet: ResourceApi, node: RigNode, pods: RigPods
) -> None:
    own = {"fieldSelector": f"spec.nodeName={node.name}"}
    notes = Notes()
    reflector = Reflector(kubelet.core("pods", own, stripped), notes, random=lambda: 0.5)
    reflector.start()
    until(lambda: reflector.status().watching)
    uid = pods.run(simple("watched"))["metadata"]["uid"]
    until(lambda: "applied watched" in notes.heard)
    known = {pod.uid: pod for pod in map(pod_of, read_whole(kubelet.core("pods", own, stripped)).objects)}
    assert (known[uid].name, known[uid].over, known[uid].static) == ("watched", False, "")
    assert reflector.stop(60)
    for query in ({}, {"fieldSelector": "spec.nodeName=stranger"}):
        with pytest.raises(Forbidden):
            read_whole(kubelet.core("pods", query, stripped))


def test_a_nodes_identity_watches_its_own_node_by_name(
    kubelet: ResourceApi, cluster: RigCluster, node: RigNode
) -> None:
    own = {"fieldSelector": f"metadata.name={node.name}"}
    notes = Notes()
    reflector = Reflector(kubelet.core("nodes", own, stripped_node), notes, random=lambda: 0.5)
    reflector.start()
    until(lambda: reflector.status().watching)
    path = f"/api/v1/nodes/{node.name}"
    cluster.api.request("PATCH", path, {"metadata": {"labels": {LABEL: "dra"}}}, MERGE)
    try:
        until(lambda: f"applied {node.name}" in notes.heard)
        (found,) = read_whole(kubelet.core("nodes", own, stripped_node)).objects
        assert words_of(found) == NodeWords("dra", None)
    finally:
        cluster.api.request("PATCH", path, {"metadata": {"labels": {LABEL: None}}}, MERGE)
        assert reflector.stop(60)


def test_a_nodes_identity_may_not_list_claims(kubelet: ResourceApi, administrator: ResourceApi) -> None:
    with pytest.raises(Forbidden, match="cannot list resource"):
        kubelet.claims(lambda body: body).read_whole()
    assert administrator.claims(lambda body: body).read_whole().resource_version


def test_a_dry_run_says_whether_taints_are_kept_and_leaves_nothing(
    kubelet: ResourceApi, administrator: ResourceApi, cluster: RigCluster, node: RigNode
) -> None:
    release = kubelet.release()
    support = asked(kubelet, DRIVER, node.name, release)
    minor = int(release.split(".")[1])
    # By default on since 1.36; before, the field is there and dropped.
    assert support.taints is (Taints.KEPT if minor >= 36 else Taints.DROPPED), support.text
    assert administrator.list_slices({"fieldSelector": f"spec.driver={DRIVER}"}) == ()
    other = asked(kubelet, DRIVER, "stranger", release)
    assert other.taints is Taints.UNKNOWN
    assert "refuses the dry run" in other.text
