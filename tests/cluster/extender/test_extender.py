"""The real scheduler asks the extender: gangs, preemption, and an extender that is killed in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.cluster.extender.stage import NAMESPACE, NODES, BareNodes
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import PODS

pytestmark = pytest.mark.timeout(1200)
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/ostler-extender"


@pytest.fixture(scope="module")
def built(cluster: RigCluster) -> Iterator[BareNodes]:
    """Nodes, extender and scheduler for the tests of this file."""
    made = BareNodes(cluster)
    try:
        made.build()
        yield made
    finally:
        made.strike()


@pytest.fixture
def stage(built: BareNodes) -> Iterator[BareNodes]:
    """They, without any pod after the test."""
    yield built
    built.clear()


def test_a_gang_gets_whole_nodes_and_another_one_waits_until_it_fits(stage: BareNodes) -> None:
    first = [stage.create(f"first-{number}", "first", 2) for number in range(2)]
    places = [stage.placed(name) for name in first]
    assert len({node for node, _ in places}) == 2
    assert all(indices == tuple(range(8)) for _, indices in places)
    second = [stage.create(f"second-{number}", "second", 2) for number in range(2)]
    stage.api.wait(f"{PODS}/{second[0]}", "is told why it waits", _is_unschedulable)
    assert not any(stage.api.get(f"{PODS}/{name}")["spec"].get("nodeName") for name in second)
    for name in first:
        stage.api.delete(f"{PODS}/{name}")
    assert len({stage.placed(name)[0] for name in second}) == 2


def test_small_gangs_share_nodes_and_no_device(stage: BareNodes) -> None:
    names = [stage.create(f"four-{number}", "four", 4, devices=4) for number in range(4)]
    places = [stage.placed(name) for name in names]
    taken = [(node, index) for node, indices in places for index in indices]
    assert len(set(taken)) == len(taken) == 16
    # Each pod has one island.
    assert all(indices in ((0, 1, 2, 3), (4, 5, 6, 7)) for _, indices in places)


def test_a_stronger_pod_evicts_a_gang_of_its_team(stage: BareNodes) -> None:
    weak = [stage.create(f"weak-{number}", f"weak-{number}", 1) for number in range(len(NODES))]
    held = {stage.placed(name)[0]: name for name in weak}
    assert set(held) == set(NODES)
    strong = stage.create("strong", "strong", 1, priority=5, strong=True)
    node, _ = stage.placed(strong)
    assert stage.api.find(f"{PODS}/{held[node]}") is None
    left = {each["metadata"]["name"] for each in stage.api.items(PODS)}
    assert left == {strong, *held.values()} - {held[node]}


def test_an_extender_that_is_killed_goes_on_where_it_was(stage: BareNodes) -> None:
    before = stage.placed(stage.create("half-0", "half", 2))
    stage.end_extender(signal.SIGKILL)
    stage.create("half-1", "half", 2)
    other = stage.create("other", "other", 1)
    stage.start_extender()
    after = stage.placed("half-1")
    assert len({before[0], after[0], stage.placed(other)[0]}) == 3
    assert stage.api.get(LEASE)["spec"]["holderIdentity"]
    assert stage.api.get(LEASE)["spec"]["leaseTransitions"] >= 1


def test_an_extender_that_ends_in_good_order_leaves_the_lease_to_the_next(stage: BareNodes) -> None:
    stage.end_extender(signal.SIGTERM)
    assert not stage.api.get(LEASE)["spec"].get("holderIdentity")
    stage.start_extender()
    assert stage.placed(stage.create("next", "next", 1))


def _is_unschedulable(pod: dict[str, object]) -> bool:
    status = pod["status"]
    assert isinstance(status, dict)
    return any(
        each["type"] == "PodScheduled"
        and each["status"] == "False"
        and "insufficient capacity in virtual cluster 'team'" in each["message"]
        for each in status.get("conditions", [])
    )
