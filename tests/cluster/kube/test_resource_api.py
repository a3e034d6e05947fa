"""The resource API against a real server: what our stand-ins take for its words and habits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driver.resource_api.client import ResourceApi
from kube.bodies import JsonObject, text_at
from kube.client import Client, RequestLimits
from kube.errors import Forbidden, NotFound, WriteConflict
from kube.kubeconfig import from_kubeconfig
from kube.reflector import Reflector
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.kube.watched import Notes
from tests.waiting import until

DRIVER = "resource-api.test"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def client_of(kubeconfig: Path) -> Client:
    return Client(from_kubeconfig(kubeconfig), random=lambda: 0.5, limits=RequestLimits(attempts=2))


@pytest.fixture
def administrator(cluster: RigCluster) -> Iterator[ResourceApi]:
    api = ResourceApi(client_of(cluster.place.kubeconfig))
    yield api
    for one in api.list_slices({"fieldSelector": f"spec.driver={DRIVER}"}):
        api.delete_slice(text_at(one, "metadata", "name"))
    api.close()


@pytest.fixture
def kubelet(node: RigNode, administrator: ResourceApi) -> Iterator[ResourceApi]:
    """The API as the node's own identity; the administrator cleans up."""
    api = ResourceApi(client_of(node.folder / "kubelet.kubeconfig"))
    yield api
    api.close()


def slice_of(node: RigNode, name: str, *devices: str) -> JsonObject:
    spec: JsonObject = {
        "driver": DRIVER,
        "nodeName": node.name,
        "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": device} for device in devices],
    }
    metadata: JsonObject = {"name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def when_known(write: Callable[[], JsonObject]) -> JsonObject:
    """What a write answers as soon as the Node authorizer has heard of the object, which takes it a moment."""
    answers: list[JsonObject] = []

    def written() -> bool:
        try:
            answers.append(write())
        except Forbidden as refused:
            if "no relationship found" not in refused.message:
                raise
            return False
        return True

    until(written)
    return answers[0]


def of_node(node: RigNode) -> dict[str, str]:
    return {"fieldSelector": f"spec.driver={DRIVER},spec.nodeName={node.name}"}


def test_a_nodes_identity_writes_lists_and_watches_its_own_slices_and_no_others(
    kubelet: ResourceApi, node: RigNode
) -> None:
    notes = Notes()
    reflector = Reflector(kubelet.slices(of_node(node)), notes, random=lambda: 0.5)
    reflector.start()
    until(lambda: reflector.status().watching)
    created = kubelet.create_slice(slice_of(node, "own", "gpu-0"))
    spec: JsonObject = {**created["spec"], "devices": []}  # type: ignore[dict-item]
    replaced = when_known(lambda: kubelet.replace_slice({**created, "spec": spec}))
    with pytest.raises(WriteConflict):
        kubelet.replace_slice({**created, "spec": spec, "metadata": {**created["metadata"], "labels": {"a": "b"}}})  # type: ignore[dict-item]
    with pytest.raises(WriteConflict):
        kubelet.delete_slice("own", uid="00000000-0000-0000-0000-000000000000")
    uid, version = (text_at(replaced, "metadata", key) for key in ("uid", "resourceVersion"))
    kubelet.delete_slice("own", uid=uid, resource_version=version)

    def heard() -> list[str]:
        # Slices that an agent has left are deleted by the kubelet after a while.
        return [word for word in notes.heard if word.endswith(" own")]

    until(lambda: len(heard()) >= 3)
    assert heard() == ["applied own", "applied own", "deleted own"]
    assert reflector.stop(60)
    with pytest.raises(Forbidden, match="nodeName field selector"):
        kubelet.list_slices({"fieldSelector": f"spec.driver={DRIVER}"})


def test_what_is_not_there_is_named(administrator: ResourceApi) -> None:
    assert administrator.claim("default", "none") is None
    assert administrator.claim("no-such-namespace", "none") is None
    with pytest.raises(NotFound, match='"none" not found'):
        administrator.delete_slice("none")


def test_a_claim_without_a_pod_is_refused_to_the_node_in_the_words_we_know(kubelet: ResourceApi) -> None:
    with pytest.raises(Forbidden, match="no relationship found"):
        kubelet.claim("default", "none")


def test_a_version_that_is_not_served_is_not_an_object_that_is_missing(cluster: RigCluster) -> None:
    client = client_of(cluster.place.kubeconfig)
    for path in ("/apis/resource.k8s.io/v9/resourceslices/x", "/apis/resource.k8s.io/v1/things/x"):
        with pytest.raises(NotFound) as caught:
            client.get(path)
        assert '"x" not found' not in caught.value.message


def test_a_version_that_is_still_to_come_gets_a_watch_without_a_word(cluster: RigCluster) -> None:
    query = {"watch": "1", "resourceVersion": "999999999", "timeoutSeconds": "1"}
    began = time.monotonic()
    with client_of(cluster.place.kubeconfig).stream(SLICES, query, read_timeout=60) as stream:
        assert list(stream) == []
    assert time.monotonic() - began >= 1
