"""A stand-in for the API server, or one that says what a test tells it to, and the API on top."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driver.resource_api.client import ResourceApi
from sandbox.apiserver.server import ApiServer
from tests.kube import server as scripted
from tests.making.resource_api import client_of


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
