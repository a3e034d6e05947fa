"""Kueue's own manager asks the extender: cells are held before pods exist, and go with the Workload."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.extender.kueue import WORKLOADS, KueueManager
from tests.cluster.extender.stage import NODES, SPEC, BareNodes, cells
from tests.cluster.rig.api import MERGE, ApiRefused, Object
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import PODS
from tests.cluster.rig.processes import wait_until
from tests.deploy.chart.rendering import render

# Kueue asks again after ten seconds or more, and building it takes minutes.
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
_PLACES = "ostler.dev/cells-reserved"
_POLICY = "ostler-extender-workloads"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


@pytest.fixture(scope="module")
def built(cluster: RigCluster) -> Iterator[tuple[BareNodes, KueueManager]]:
    """Nodes, extender, scheduler and Kueue, for all tests; the queue has more quota than there are cells."""
    stage, manager = BareNodes(cluster, is_for_kueue=True), KueueManager(cluster)
    try:
        # The extender starts before Kueue is installed.
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
    places = [stage.placed(name) for name in pods_of(queue, "first", 2)]
    assert len({node for node, _ in places}) == 2
    assert all(indices == tuple(range(8)) for _, indices in places)
    assert reserved(queue, "first") == {node for node, _ in places}
    queue.create_job("second", 2)
    wait_until("the second one is sent back", lambda: "waits: insufficient capacity" in history(queue, "second"))
    assert queue.job("second")["spec"]["suspend"]
    # A small one goes by: the quota of the large one was released.
    queue.create_job("third", 1)
    (small,) = pods_of(queue, "third", 1)
    assert stage.placed(small)[0] not in {node for node, _ in places}
    # And the large one follows once there is room, when Kueue asks again.
    queue.delete_job("first")
    assert len({stage.placed(name)[0] for name in pods_of(queue, "second", 2)}) == 2


def test_cells_are_held_while_a_job_has_no_pods_and_over_a_restart(stage: BareNodes, queue: KueueManager) -> None:
    # Its pods name a scheduler that does not exist, so none of them is bound.
    queue.create_job("held", 2, scheduler="nobody")
    pods_of(queue, "held", 2)
    nodes = reserved(queue, "held")
    assert len(nodes) == 2
    stage.end_extender(signal.SIGKILL)
    other = stage.create("other", "other", 2)
    stage.start_extender()
    stage.api.wait(f"{PODS}/{other}", "waits", is_unschedulable)
    small = stage.create("small", "small", 1)
    assert stage.placed(small)[0] not in nodes
    queue.delete_job("held")
    stage.api.delete(f"{PODS}/{small}")
    assert stage.placed(other)


@pytest.mark.parametrize("end", ["deactivated", "deleted"])
def test_cells_are_free_once_kueue_stops_a_job(stage: BareNodes, queue: KueueManager, end: str) -> None:
    queue.create_job("stopped", len(NODES), scheduler="nobody")
    pods_of(queue, "stopped", len(NODES))
    queue.create_job("next", 1)
    wait_until("the next one is sent back", lambda: "waits: insufficient capacity" in history(queue, "next"))
    if end == "deactivated":
        workload = queue.workload("stopped")
        assert workload is not None
        path = f"{WORKLOADS}/{workload['metadata']['name']}"
        queue.api.request("PATCH", path, {"spec": {"active": False}}, MERGE)
    else:
        queue.delete_job("stopped")
    (name,) = pods_of(queue, "next", 1)
    assert stage.placed(name)


def test_a_job_that_ends_gives_its_cells_back_and_a_failed_pod_keeps_them(
    stage: BareNodes, queue: KueueManager
) -> None:
    queue.create_job("short", len(NODES))
    names = pods_of(queue, "short", len(NODES))
    places = {name: stage.placed(name) for name in names}
    queue.create_job("next", 1)
    wait_until("the next one is sent back", lambda: "waits: insufficient capacity" in history(queue, "next"))
    # A pod that is deleted is created again, and finds its place.
    lost = names[0]
    stage.api.delete(f"{PODS}/{lost}")
    (again,) = set(pods_of(queue, "short", len(NODES), without=lost)) - set(names)
    assert stage.placed(again) == places[lost]
    for name in {*names, again} - {lost}:
        body = {"status": {"phase": "Succeeded"}}
        stage.api.request("PATCH", f"{PODS}/{name}/status", body, MERGE)
    (name,) = pods_of(queue, "next", 1)
    assert stage.placed(name)


def test_a_job_preempts_what_its_virtual_cluster_may_preempt(stage: BareNodes, queue: KueueManager) -> None:
    cheap = [stage.create(f"cheap-{number}", f"cheap-{number}", 1, priority=-1) for number in range(len(NODES))]
    held = {stage.placed(name)[0]: name for name in cheap}
    queue.create_job("owner", 1, priority=5)
    (name,) = pods_of(queue, "owner", 1)
    assert "fits once 1 pod ended, which it would preempt" in queue.check("owner")["message"]
    node, _ = stage.placed(name)
    assert stage.api.find(f"{PODS}/{held[node]}") is None


def test_a_job_that_can_never_fit_is_deactivated(queue: KueueManager) -> None:
    queue.create_job("wrong", 1, virtualCluster="nobody")
    wait_until("it is rejected", lambda: "virtual cluster 'nobody' does not exist" in history(queue, "wrong"))
    workload = queue.workload("wrong")
    assert workload is not None
    wait_until("it is inactive", lambda: (queue.workload("wrong") or {})["spec"]["active"] is False)


def test_a_workload_may_not_name_the_virtual_cluster_of_another_namespace(queue: KueueManager) -> None:
    configuration = cells([], team={}, product={})
    values = {
        "config": configuration,
        "tlsSecret": "tls",
        "kueue": {"enabled": True},
        "namespaces": {"virtualClusters": {"default": ["team"]}},
    }
    made = []
    for document in render({"extender": {"enabled": True, **values}}):
        if document["metadata"]["name"] == _POLICY:
            collection = f"/apis/admissionregistration.k8s.io/v1/{PLURALS[document['kind']]}"
            queue.api.create(collection, document)
            made.append(f"{collection}/{_POLICY}")
    assert len(made) == len(PLURALS)
    try:
        expected = "namespace default may not use the virtual cluster product; it may use team"
        wait_until("it is refused", lambda: expected in refusal(queue, "product"))
        assert refusal(queue, "team") == ""
        # The API server finds nothing wrong with the policy's types either.
        found = queue.api.wait(made[0], "is checked", lambda body: "typeChecking" in body.get("status", {}))
        assert not found["status"]["typeChecking"].get("expressionWarnings")
    finally:
        for path in made:
            queue.api.delete(path)


def refusal(queue: KueueManager, cluster: str) -> str:
    """Why a Workload of that virtual cluster is refused, empty if it is not; nothing is created."""
    annotations = {SPEC: json.dumps({"virtualCluster": cluster, "leafCellNumber": 1})}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "tried"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    try:
        queue.api.request("POST", f"{WORKLOADS}?dryRun=All", body)
    except ApiRefused as refused:
        return str(refused)
    return ""


def history(queue: KueueManager, job: str) -> str:
    """What the check said about a Job's Workload so far: Kueue resets the check once it has evicted the Workload."""
    workload = queue.workload(job) or {}
    uid = workload.get("metadata", {}).get("uid")
    events = queue.api.items("/api/v1/namespaces/default/events")
    return "\n".join(each["message"] for each in events if each["involvedObject"].get("uid") == uid)


def reserved(queue: KueueManager, job: str) -> set[str]:
    """The nodes of a Job's cells by its check."""
    check = queue.check(job)
    text = check["podSetUpdates"][0]["annotations"][_PLACES]
    return {node for node in NODES if f'"{node}"' in text}


def pods_of(queue: KueueManager, job: str, count: int, *, without: str = "") -> list[str]:
    """The names of a Job's pods, once there are so many."""

    def found() -> list[str]:
        return [
            name
            for each in queue.api.items(PODS)
            if each["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job
            and (name := each["metadata"]["name"]) != without
        ]

    wait_until(f"job {job} has {count} pods", lambda: len(found()) == count, timeout=120.0)
    return found()


def is_unschedulable(pod: Object) -> bool:
    """Whether the scheduler has said that it cannot place a pod."""
    return any(
        each["type"] == "PodScheduled" and each["status"] == "False" and each["reason"] == "Unschedulable"
        for each in pod["status"].get("conditions") or []
    )
