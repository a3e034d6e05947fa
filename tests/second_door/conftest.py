"""A stand-in with the Node of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.apiserver.server import ApiServer
from tests.holders.making import World
from tests.second_door.making import node


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.store.create("nodes", node())
        yield running


@pytest.fixture
def world(server: ApiServer) -> World:
    return World(server)
