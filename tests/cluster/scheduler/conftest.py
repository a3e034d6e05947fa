"""A cluster in which worlds are laid out for the real scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from scheduling.explain.cluster import FOLLOWED, note_of
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.scheduler.live import LiveStage


@pytest.fixture(scope="module")
def stage(cluster: RigCluster) -> Iterator[LiveStage]:
    """Nodes and a namespace for the worlds of this file."""
    if note_of(f"v{cluster.version}"):
        pytest.skip(f"the allocator follows Kubernetes 1.{FOLLOWED[0]} and later, which gather pools in another order")
    with contextlib.closing(LiveStage(cluster.api, cluster.version)) as made:
        made.build()
        yield made
        made.strike()
