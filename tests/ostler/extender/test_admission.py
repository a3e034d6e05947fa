"""The controller of Kueue's AdmissionChecks: cells are held as long as the Workload has a right to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ostler.extender.workloads import ANNOTATION_PLACES
from scheduling.cells.pod import ANNOTATION_GROUP
from tests.making.extender import RunningExtender, cells, extender
from tests.making.extender_cluster import ClusterApi, node, pod
from tests.making.kueue import CHECK, Body, admission_check, pod_set, workload
from tests.waiting import until


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    with ClusterApi([node("n0"), node("n1"), admission_check()]) as made:
        yield made


@pytest.fixture
def running(tmp_path: Path, api: ClusterApi) -> Iterator[RunningExtender]:
    with started(tmp_path, api) as made:
        yield made


def started(folder: Path, api: ClusterApi, **owners: int) -> Any:
    """An extender that answers checks; A and B own a node each."""
    return extender(folder, api, cells(2, **(owners or {"A": 1, "B": 1})), is_for_kueue=True)


def check_of(api: ClusterApi, name: str) -> Body:
    found = api.get("Workload", name, "team")
    assert found is not None
    check: Body = found["status"]["admissionChecks"][0]
    return check


def answered(api: ClusterApi, body: Body, state: str) -> Body:
    """Create or change a Workload, and wait for that answer of its check."""
    name = api.put(body)["metadata"]["name"]
    until(lambda: check_of(api, name)["state"] == state, f"{name} is {state}")
    return check_of(api, name)


def changed(api: ClusterApi, name: str, **status: Any) -> None:
    """Change the status of a Workload as Kueue does."""
    body = api.get("Workload", name, "team")
    assert body is not None
    api.put({**body, "status": {**body["status"], **status}})


def condition(kind: str) -> list[Body]:
    return [{"type": "QuotaReserved", "status": "True"}, {"type": kind, "status": "True"}]


def job_pod(api: ClusterApi, name: str, of: str, namespace: str = "team") -> Body:
    """A pod of a Workload's job, as Kueue and the Job controller make it."""
    (update,) = check_of(api, of)["podSetUpdates"]
    body = pod(name, annotations=update["annotations"])
    body["metadata"]["namespace"] = namespace
    return body


def test_the_check_is_active_while_the_extender_answers(api: ClusterApi, running: RunningExtender) -> None:
    api.put(admission_check("foreign", "example.com/other"))
    api.put(admission_check("odd", parameters={"apiGroup": "a", "kind": "b", "name": "c"}))
    until(lambda: condition_of(api, CHECK).get("status") == "True", "active")
    until(lambda: condition_of(api, "odd").get("status") == "False", "not active")
    assert condition_of(api, "odd")["message"] == (
        "spec.parameters is not supported; create the AdmissionCheck without it"
    )
    assert condition_of(api, "foreign") == {}


def condition_of(api: ClusterApi, name: str) -> Body:
    body = api.get("AdmissionCheck", name)
    assert body is not None
    found: list[Body] = body.get("status", {}).get("conditions", [{}])
    return found[0]


def test_a_job_is_ready_with_its_cells_and_its_pods_get_them(api: ClusterApi, running: RunningExtender) -> None:
    check = answered(api, workload("train", pod_set(count=2, leaves=4)), "Ready")
    assert "team/train (A, priority 0, 2 x 4 GPUs) fits now" in check["message"]
    assert check["lastTransitionTime"]
    (group,) = running.groups()
    assert group == "team/train"
    # Another job of the virtual cluster waits, and so do pods without a job.
    wait = answered(api, workload("late"), "Retry")
    assert wait["requeueAfterSeconds"] == 10
    assert wait["message"].endswith("waits: insufficient capacity in virtual cluster 'A'")
    other = pod("other")
    running.add(other)
    assert running.filter(other, "n0", "n1")["NodeNames"] is None
    members = [job_pod(api, f"train-{number}", "train") for number in range(2)]
    for each in members:
        each["metadata"]["annotations"] |= pod_set(leaves=4)["template"]["metadata"]["annotations"]
    assert {running.place(each, "n0", "n1") for each in members} <= {"n0", "n1"}
    isolations = {
        each["body"]["metadata"]["annotations"]["hivedscheduler.microsoft.com/pod-leaf-cell-isolation"]
        for each in api.bindings
    }
    assert isolations == {"0,1,2,3", "4,5,6,7"}


def test_events_say_what_became_of_a_workload(api: ClusterApi, running: RunningExtender) -> None:
    answered(api, workload("train"), "Ready")
    answered(api, workload("late"), "Retry")
    answered(api, workload("wrong", pod_set(virtualCluster="none")), "Rejected")
    until(
        lambda: {each["reason"] for each in api.all("Event")} == {"CellsReserved", "CellsNotFree", "CellsImpossible"},
        "three events",
    )
    (event,) = [each for each in api.all("Event") if each["reason"] == "CellsImpossible"]
    assert event["involvedObject"] == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "name": "wrong",
        "namespace": "team",
        "uid": "uid-wrong",
    }
    assert event["message"] == (
        "team/wrong cannot be placed: virtual cluster 'none' does not exist; the configuration has A, B"
    )


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (
            [pod_set(count=2)],
            (
                "team/big cannot be placed: it asks for 16 leaf cells, and virtual cluster 'A' has at most 8 that can "
                "hold one gang"
            ),
        ),
        (
            [pod_set(leaves=16)],
            (
                "team/big cannot be placed: it asks for 16 leaf cells, and virtual cluster 'A' has at most 8 that can "
                "hold one gang"
            ),
        ),
        (
            [pod_set(leaves=9, priority=-1)],
            "team/big cannot be placed: a pod asks for 9 leaf cells, and the cluster has at most 8 on one node",
        ),
        ([pod_set(leafCellType="X")], "team/big cannot be placed: no cell has the leaf type 'X'; the cluster has G"),
    ],
)
def test_a_gang_that_fits_never_is_rejected(
    api: ClusterApi, running: RunningExtender, sets: list[Body], text: str
) -> None:
    assert answered(api, workload("big", *sets), "Rejected")["message"] == text


@pytest.mark.parametrize(
    "end",
    [
        {"conditions": condition("Evicted")},
        {"conditions": condition("Finished")},
        {"conditions": []},
        {"admissionChecks": []},
        {"admissionChecks": [{"name": CHECK, "state": "Rejected"}]},
    ],
)
def test_cells_are_free_once_the_workload_has_no_right_to_them(
    api: ClusterApi, running: RunningExtender, end: Body
) -> None:
    answered(api, workload("train"), "Ready")
    changed(api, "train", **end)
    until(lambda: not running.groups(), "the cells are free")
    answered(api, workload("next"), "Ready")


def test_cells_are_free_once_the_workload_is_gone(api: ClusterApi, running: RunningExtender) -> None:
    answered(api, workload("train"), "Ready")
    api.delete("Workload", "train", "team")
    until(lambda: not running.groups(), "the cells are free")


def test_a_restart_holds_the_same_cells_before_it_answers(api: ClusterApi, tmp_path: Path) -> None:
    with started(tmp_path, api, A=2) as first:
        answered(api, workload("one", pod_set(leaves=4)), "Ready")
        answered(api, workload("two", pod_set()), "Ready")
        answered(api, workload("three", pod_set(leaves=4)), "Ready")
        before = first.groups()
    with started(tmp_path, api, A=2) as second:
        # Without waiting for anything.
        assert places_of(second.groups()) == places_of(before)
        answered(api, workload("four", pod_set(leaves=1)), "Retry")


def places_of(groups: dict[str, Any]) -> dict[str, Any]:
    return {name: each["physicalPlacement"] for name, each in groups.items()}


def test_a_restart_finds_the_job_whose_pods_run(api: ClusterApi, tmp_path: Path) -> None:
    with started(tmp_path, api) as first:
        answered(api, workload("train"), "Ready")
        first.place(job_pod(api, "train-0", "train"), "n0", "n1")
    with started(tmp_path, api) as second:
        (group,) = second.groups().values()
        assert group["allocatedPods"] == ["uid-train-0"]
        api.delete("Pod", "train-0", "team")
        second.settle()
        assert list(second.groups()) == ["team/train"]
        changed(api, "train", conditions=condition("Finished"))
        until(lambda: not second.groups(), "the cells are free")


def test_a_job_whose_cells_are_lost_is_taken_back(api: ClusterApi, running: RunningExtender) -> None:
    check = answered(api, workload("train"), "Ready")
    places = json.loads(check["podSetUpdates"][0]["annotations"][ANNOTATION_PLACES])
    lost = places["pods"][0][0]
    running.add(node(lost, is_ready=False))
    until(lambda: check_of(api, "train")["state"] == "Retry", "taken back")
    assert check_of(api, "train")["message"] == f"team/train has lost its cells: its cells on node {lost} are bad"
    assert "podSetUpdates" not in check_of(api, "train")
    # Kueue asks again, and the other node is still healthy.
    changed(api, "train", admissionChecks=[{"name": CHECK, "state": "Pending"}])
    until(lambda: check_of(api, "train")["state"] == "Ready", "ready again")


def test_a_stronger_gang_takes_cells_that_no_pod_uses_yet(api: ClusterApi, running: RunningExtender) -> None:
    answered(api, workload("weak"), "Ready")
    strong = pod("strong", priority=5)
    assert running.place(strong, "n0", "n1")
    until(lambda: check_of(api, "weak")["state"] == "Retry", "taken back")
    assert "has lost its cells" in check_of(api, "weak")["message"]


def test_a_gang_that_has_to_preempt_is_ready_and_keeps_others_away(api: ClusterApi, running: RunningExtender) -> None:
    cheap = [pod(f"cheap-{number}", priority=-1, vc="B") for number in range(2)]
    for each in cheap:
        running.place(each, "n0", "n1")
    check = answered(api, workload("owner"), "Ready")
    assert "fits once 1 pod ended, which it would preempt" in check["message"]
    assert list(check["podSetUpdates"][0]["annotations"]) == [ANNOTATION_GROUP]
    answered(api, workload("late"), "Retry")
    own = job_pod(api, "owner-0", "owner")
    running.add(own)
    _, victims = running.preempt(own, "n0", "n1")
    ((where, found),) = victims["NodeNameToMetaVictims"].items()
    (victim,) = [each["UID"] for each in found["Pods"]]
    api.delete("Pod", victim.removeprefix("uid-"), "default")
    running.settle()
    assert running.place(own, "n0", "n1") == where


def test_pods_of_another_namespace_do_not_join_a_job(api: ClusterApi, running: RunningExtender) -> None:
    answered(api, workload("train"), "Ready")
    thief = job_pod(api, "thief", "train", namespace="default")
    running.add(thief)
    assert running.filter(thief, "n0", "n1")["Error"].endswith(
        "affinity group 'team/train' belongs to a job of namespace team; give this one another name"
    )


def test_a_new_configuration_keeps_what_is_held_or_takes_the_job_back(
    api: ClusterApi, running: RunningExtender
) -> None:
    answered(api, workload("train"), "Ready")
    document = json.loads(running.path.read_text())
    running.path.write_text(json.dumps({**document, **cells(2, A=1, B=1, C=0)}))
    running.process.reload()
    until(lambda: len(running.ask("GET", "/v1/inspect/clusterstatus/virtualclusters/")[1]) == 3, "the new one")
    assert list(running.groups()) == ["team/train"]
    assert check_of(api, "train")["state"] == "Ready"


def test_a_write_that_is_refused_is_tried_again(api: ClusterApi, running: RunningExtender) -> None:
    api.refusals["workloads/train/status"] = (409, "the object has been modified")
    api.put(workload("train"))
    until(running.groups, "the cells are held")
    api.refusals.clear()
    until(lambda: check_of(api, "train")["state"] == "Ready", "ready")


def test_workloads_that_wait_for_quota_take_no_part(api: ClusterApi, tmp_path: Path) -> None:
    for number in range(300):
        api.put(workload(f"w{number}", has_quota=False))
    with started(tmp_path, api) as running:
        answered(api, workload("train"), "Ready")
        assert list(running.groups()) == ["team/train"]


def test_kueue_may_be_installed_later(api: ClusterApi, tmp_path: Path) -> None:
    api.missing = frozenset({"workloads", "admissionchecks"})
    with started(tmp_path, api) as running:
        assert running.place(pod("plain", vc="B"), "n0", "n1")
        api.put(workload("train"))
        api.missing = frozenset()
        until(lambda: check_of(api, "train")["state"] == "Ready", "it is answered")


def test_without_the_option_no_check_is_answered(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, cells(2)) as running:
        api.put(workload("train"))
        assert running.place(pod("plain"), "n0", "n1")
        assert check_of(api, "train")["state"] == "Pending"
