"""A stand-in for the API server, or one that says what a test tells it to, and the API on top."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driver.resource_api.client import ResourceApi
from kube.access import Access, Credential, Fixed
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject
from kube.client import Client, RequestLimits
from sandbox.apiserver.server import ApiServer
from tests.kube import server as scripted

AT_ONCE = BackoffPolicy(first=0.001, most=0.002, longest=0.01)


def client_of(url: str, *, whole: float = 10.0, attempts: int = 2, connections: int = 4) -> Client:
    access = Access(url, "a test", Fixed("none", Credential("Bearer word")))
    limits = RequestLimits(whole=whole, attempts=attempts)
    return Client(access, random=lambda: 0.5, limits=limits, policy=AT_ONCE, connections=connections)


def slice_named(name: str, *devices: str, version: str = "", **spec: object) -> JsonObject:
    pool: JsonObject = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    attributes: JsonObject = {"index": {"int": 0}}
    metadata: JsonObject = {"name": name, **({"resourceVersion": version} if version else {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": "ostler.dev",
            "nodeName": "node-1",
            "pool": pool,
            "devices": [{"name": device, "attributes": attributes} for device in devices],
            **spec,  # type: ignore[dict-item]
        },
    }


def claim_named(name: str) -> JsonObject:
    request: JsonObject = {"name": "gpu", "exactly": {"deviceClassName": "gpu.ostler.dev"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"devices": {"requests": [request]}},
    }


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server: ApiServer) -> Iterator[ResourceApi]:
    made = ResourceApi(client_of(server.url))
    yield made
    made.close()


@pytest.fixture
def words() -> Iterator[scripted.ApiServer]:
    """Serves v1, and answers everything else as a test says."""
    with scripted.ApiServer() as running:
        yield running
