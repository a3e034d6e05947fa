"""A stand-in with the Node of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import api_server
from tests.making.watched_node import WatchedWorld


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture
def world(server: ApiServer) -> WatchedWorld:
    return WatchedWorld(server)
