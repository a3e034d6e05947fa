"""A stand-in with a team's namespace, and an API that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from driver.resource_api.async_client import AsyncResourceApi
from sandbox.apiserver.server import ApiServer
from tests.making.resource_api import async_api_of
from tests.making.watched_node import WatchedWorld


@pytest.fixture
def world(server: ApiServer) -> WatchedWorld:
    return WatchedWorld(server)


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[AsyncResourceApi]:
    made = async_api_of(server)
    yield made
    made.close()
