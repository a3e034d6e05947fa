"""The API server as our client has it: blocking calls, which take a moment and fail while the server is away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kube.answers import Page
from kube.bodies import JsonObject
from kube.collection import Listing
from kube.errors import Unreachable
from kube.json_stream import WHOLE, Fields
from tests.making.virtual_time import VirtualLoop
from tests.model.cluster import ModelCluster
from tests.model.objects import NAMESPACE, ModelPod


class ModelApi:
    """As much of ``driver.resource_api.client.ResourceApi`` as is asked for here."""

    def __init__(self, loop: VirtualLoop, cluster: ModelCluster) -> None:
        self._loop = loop
        self._cluster = cluster

    def claim(self, namespace: str, name: str, *, attempts: int | None = None) -> JsonObject | None:
        self._reach()
        return self._cluster.claim_body(name)

    def claims(self, read: Callable[[JsonObject], JsonObject], fields: Fields = WHOLE) -> Collected:
        return Collected(self, lambda: [read(body) for body in self._cluster.named()])

    def core(
        self, plural: str, query: Mapping[str, str], read: Callable[[JsonObject], JsonObject], fields: Fields = WHOLE
    ) -> Collected:
        assert plural == "pods"
        return Collected(self, lambda: [_pod(pod) for pod in self._cluster.pods.values() if pod.bound])

    def close(self) -> None:
        pass

    def _reach(self) -> None:
        if not self._cluster.up:
            raise Unreachable("GET", "/", "no route to host", sent=False)


class Collected:
    """A list that is made when it is asked for."""

    path = "/"

    def __init__(self, api: ModelApi, objects: Callable[[], list[JsonObject]]) -> None:
        self._api = api
        self._objects = objects

    def read_whole(self) -> Listing:
        self._api._reach()
        return Listing(tuple(self._objects()), "1")

    def page(self, query: Mapping[str, str], *, roomy: int | None = None) -> Page:
        self._api._reach()
        return Page(tuple(self._objects()), "1")

    def read(self, body: JsonObject) -> JsonObject:
        return body

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Any:
        raise AssertionError("nobody watches through this")


def _pod(pod: ModelPod) -> JsonObject:
    return {
        "metadata": {"uid": pod.uid, "namespace": NAMESPACE, "name": pod.name},
        "spec": {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in pod.claims]},
        "status": {"phase": pod.phase.value, "containerStatuses": [{"state": {"running": {}}}] if pod.alive else []},
    }
