"""A cluster of two nodes, and an extender that runs against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making.extender import RunningExtender, cells, extender
from tests.making.extender_cluster import ClusterApi, node


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    with ClusterApi([node("n0"), node("n1")]) as made:
        yield made


@pytest.fixture
def running(api: ClusterApi, tmp_path: Path) -> Iterator[RunningExtender]:
    with extender(tmp_path, api, cells(2)) as made:
        yield made
