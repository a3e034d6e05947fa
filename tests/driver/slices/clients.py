"""Clients of the API server's stand-in, which try again at once."""

from __future__ import annotations

from driver.resource_api.client import ResourceApi
from kube.access import Access, Credential, Fixed
from kube.backoff import BackoffPolicy
from kube.client import Client
from sandbox.apiserver.server import ApiServer

AT_ONCE = BackoffPolicy(first=0.001, most=0.002, longest=0.01)


def api_of(server: ApiServer) -> ResourceApi:
    return api_at(server.url)


def api_at(url: str) -> ResourceApi:
    access = Access(url, "a test", Fixed("the test's token", Credential("Bearer word")))
    return ResourceApi(Client(access, random=lambda: 0.5, policy=AT_ONCE, connections=8))
