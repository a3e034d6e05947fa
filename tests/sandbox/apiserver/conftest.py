"""A server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.apiserver.server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running
