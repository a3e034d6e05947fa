"""A cluster of its own, whose only node has no kubelet: nothing runs on it, and its name is fit for documents."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.explain.stage import ExplainStage
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.place import RUN


@pytest.fixture(scope="package")
def cluster() -> Iterator[RigCluster]:
    """etcd, API server, controllers and scheduler."""
    name = f"{RUN}explain-{os.getpid()}"
    try:
        yield up(name, os.environ.get("K8S", ""), nodes=0)
    finally:
        down(name)


@pytest.fixture(scope="package")
def built(cluster: RigCluster) -> Iterator[ExplainStage]:
    """The node and the namespace."""
    stage = ExplainStage(cluster)
    try:
        stage.build()
        yield stage
    finally:
        stage.close()


@pytest.fixture
def stage(built: ExplainStage) -> Iterator[ExplainStage]:
    """The same; what a test made is gone afterwards."""
    yield built
    built.clear()
