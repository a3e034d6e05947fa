"""An API server for each test of the DRA door, and clients for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driver.resource_api.client import ResourceApi
from sandbox.apiserver.server import ApiServer
from tests.making.resource_api import api_of


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server: ApiServer) -> Iterator[ResourceApi]:
    made = api_of(server)
    yield made
    made.close()
