"""The resource API on the API server's stand-in, by clients that try again at once, and objects for it."""

from __future__ import annotations

from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from kube.access import Access, Credential, FixedCredentials
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject
from kube.client import Client, RequestLimits
from sandbox.apiserver.server import ApiServer

AT_ONCE = BackoffPolicy(first=0.001, most=0.002, longest=0.01)


def client_of(url: str, *, whole: float = 10.0, attempts: int = 2, connections: int = 4) -> Client:
    return _client(url, RequestLimits(whole=whole, attempts=attempts), connections)


def _client(url: str, limits: RequestLimits, connections: int) -> Client:
    access = Access(url, "a test", FixedCredentials("none", Credential("Bearer word")))
    return Client(access, random=lambda: 0.5, limits=limits, policy=AT_ONCE, connections=connections)


def api_at(url: str) -> ResourceApi:
    return ResourceApi(_client(url, RequestLimits(), 8))


def api_of(server: ApiServer) -> ResourceApi:
    return api_at(server.url)


def async_api_of(server: ApiServer, *, attempts: int = 1) -> AsyncResourceApi:
    return AsyncResourceApi(lambda: ResourceApi(client_of(server.url, connections=10, attempts=attempts)), threads=8)


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
