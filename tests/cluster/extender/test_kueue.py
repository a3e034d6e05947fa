"""Kueue's own manager asks the extender: cells are held before pods exist, and go with the Workload."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.extender.kueue import KueueManager
from tests.cluster.extender.stage import BareNodes
from tests.cluster.rig.cluster import Cluster
from tests.cluster.rig.pods import PODS
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Iterator[tuple[BareNodes, KueueManager]]:
    """Nodes, extender, scheduler and Kueue, for all tests; the queue has more quota than there are cells."""
    stage, manager = BareNodes(cluster, is_for_kueue=True), KueueManager(cluster)
    try:
        stage.build()
        manager.build(quota=100)
        yield stage, manager
    finally:
        manager.strike()
        stage.strike()


@pytest.fixture
def stage(built: tuple[BareNodes, KueueManager]) -> Iterator[BareNodes]:
    """Nodes, extender and scheduler."""
    yield built[0]
    built[0].clear()


@pytest.fixture
def queue(stage: BareNodes, built: tuple[BareNodes, KueueManager]) -> Iterator[KueueManager]:
    """Kueue, without any Job after the test."""
    yield built[1]
    built[1].clear()


def test_a_job_gets_whole_nodes_and_the_next_one_waits_in_the_queue(stage: BareNodes, queue: KueueManager) -> None:
    queue.create_job("first", 2)
    wait_until("the check is ready", lambda: queue.check("first").get("state") == "Ready")
    names = pods_of(queue, "first", 2)
    places = [stage.placed(name) for name in names]
    assert len({node for node, _ in places}) == 2
    queue.create_job("second", 2)
    wait_until(
        "the second one is sent back", lambda: "waits: insufficient capacity" in retried_message(queue, "second")
    )
    assert queue.job("second")["spec"]["suspend"]


def retried_message(queue: KueueManager, job: str) -> str:
    """What Kueue says about the eviction of a Job's Workload."""
    workload = queue.workload(job) or {}
    conditions = workload.get("status", {}).get("conditions", [])
    return " ".join([*(str(each["message"]) for each in conditions), str(queue.check(job).get("message", ""))])


def pods_of(queue: KueueManager, job: str, count: int) -> list[str]:
    """The names of a Job's pods, once there are so many."""

    def found() -> list[str]:
        return [
            each["metadata"]["name"]
            for each in queue.api.items(PODS)
            if each["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job
        ]

    wait_until(f"job {job} has {count} pods", lambda: len(found()) == count)
    return found()
