"""The image on the node, and a release that is gone after the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.chart.release import Release, import_image
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import RigPods


@pytest.fixture(scope="session")
def image(cluster: RigCluster) -> None:
    """The image of the sources, in the node's container runtime."""
    import_image(cluster.nodes[0])


def released(cluster: RigCluster) -> Iterator[Release]:
    """A release that is not installed yet; afterwards it is gone, and what it leaves on the node too."""
    made = Release(cluster)
    try:
        yield made
    finally:
        made.uninstall()
        for entry in (cluster.nodes[0].folder / "lib-ostler").iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@pytest.fixture
def release(cluster: RigCluster, image: None, pods: RigPods) -> Iterator[Release]:
    """A release of this test's own; it ends before the test's pods, as no pod is left on the node after those."""
    yield from released(cluster)


@pytest.fixture(scope="module")
def installed(cluster: RigCluster, image: None) -> Iterator[Release]:
    """The chart with its defaults on the node's own hardware, for all tests of a module that change nothing."""
    for made in released(cluster):
        made.install()
        yield made
