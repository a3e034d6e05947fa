"""An API server that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube import server as scripted


@pytest.fixture
def words() -> Iterator[scripted.StubApiServer]:
    """Serves v1, and answers everything else as a test says."""
    with scripted.StubApiServer() as running:
        yield running
