"""Kueue's Workloads: the gang that each will be, the answers of its check, and objects that make no sense."""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from typing import Any

import pytest

from ostler.extender.check_answers import (
    WorkloadUnfit,
    gang_of,
    placed,
    preempting,
    recorded_places,
    rejected,
    retried,
    unconcerned,
    waiting,
    write_places,
)
from ostler.extender.workloads import ANNOTATION_PLACES, CheckState, KueueWorkload, WorkloadStep, read_workload
from scheduling.cells.pod import (
    ANNOTATION_GROUP,
    ANNOTATION_SPEC,
    BindInfo,
    CellPod,
    GroupMemberPlacement,
    PodPlacement,
    read_pod_spec,
)
from tests.making.kueue import CHECK, SPEC, Body, pod_set, workload

OURS = frozenset({CHECK})


def gang(body: Body) -> CellPod:
    found = gang_of(read_workload(body))
    assert found is not None
    return found


def info(*places: tuple[str, tuple[int, ...]], types: tuple[str, ...] = ("G-NODE",)) -> BindInfo:
    made = tuple(PodPlacement(node, indices, types * len(indices)) for node, indices in places)
    return BindInfo(made[0].node, made[0].indices, "G-NODE", (GroupMemberPlacement(made),))


@pytest.mark.parametrize(
    ("more", "step"),
    [
        ({}, WorkloadStep.DECIDE),
        ({"state": ""}, WorkloadStep.DECIDE),
        ({"state": "Ready"}, WorkloadStep.KEEP),
        ({"state": "Retry"}, WorkloadStep.RELEASE),
        ({"state": "Rejected"}, WorkloadStep.RELEASE),
        ({"state": "Ready", "has_quota": False}, WorkloadStep.RELEASE),
        ({"state": "Ready", "active": False}, WorkloadStep.RELEASE),
        ({"state": "Ready", "conditions": {"Evicted": True}}, WorkloadStep.RELEASE),
        ({"state": "Ready", "conditions": {"Finished": True}}, WorkloadStep.RELEASE),
        ({"state": "Ready", "conditions": {"Evicted": False, "Admitted": True}}, WorkloadStep.KEEP),
    ],
)
def test_a_workload_has_a_right_to_cells_as_long_as_it_has_quota(more: dict[str, Any], step: WorkloadStep) -> None:
    assert read_workload(workload(**more)).step(OURS) is step
    assert read_workload(workload(**more)).step(frozenset({"other"})) is WorkloadStep.RELEASE


def test_a_workload_that_is_being_deleted_has_none() -> None:
    body = workload(state="Ready")
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert read_workload(body).step(OURS) is WorkloadStep.RELEASE


def test_the_workloads_pods_are_the_gang() -> None:
    spec = gang(
        workload("train", pod_set("driver", 1, 4), pod_set("worker", 3, 8), pod_set("web", 9, wants_cells=False))
    )
    assert spec.spec.group.name == "team/train"
    assert [(each.leaf_cell_number, each.pod_number) for each in spec.spec.group.members] == [(4, 1), (8, 3)]
    assert (spec.uid, spec.namespace, spec.spec.virtual_cluster) == ("uid-train", "team", "A")
    # As many as Kueue admits, which may be fewer.
    partial = gang(workload("train", pod_set("worker", 9), counts={"worker": 5}))
    assert partial.spec.group.members[0].pod_number == 5


def test_a_group_that_is_written_out_is_kept_if_it_is_the_workloads_pods() -> None:
    group = {"name": "mine", "members": [{"podNumber": 2, "leafCellNumber": 8}]}
    assert gang(workload("train", pod_set(count=2, affinityGroup=group))).spec.group.name == "mine"


def test_a_workload_without_pods_that_want_cells_is_ready_at_once() -> None:
    read = read_workload(workload("web", pod_set(wants_cells=False)))
    assert gang_of(read) is None
    answer = unconcerned(read, OURS)[CHECK]
    assert answer.state is CheckState.READY
    assert answer.message == (
        "no pod has a limit hivedscheduler.microsoft.com/pod-scheduling-enable, so no cells are reserved"
    )


GROUP = {"name": "mine", "members": [{"podNumber": 3, "leafCellNumber": 8}]}


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (
            [pod_set(count=2, affinityGroup=GROUP)],
            "affinityGroup 'mine' has 3 pods with 8 leaf cells, and the Workload has 2 pods with 8 leaf cells; omit ",
        ),
        (
            [pod_set("a"), pod_set("b", virtualCluster="B")],
            "virtualCluster is 'A' in pod set 'a' and 'B' in 'b'; a Workload is one gang, so write the same in both",
        ),
        (
            [pod_set("a", affinityGroup=GROUP), pod_set("b")],
            "affinityGroup is 'mine' in pod set 'a' and 'team/train' in 'b'; a Workload is one gang, so omit",
        ),
        (
            [pod_set(leaves=0)],
            "pod set 'main': annotation hivedscheduler.microsoft.com/pod-scheduling-spec: leafCellNumber",
        ),
        ([pod_set(count=200_000)], "the Workload has 200000 pods that want cells; a gang has at most 100000"),
        ([pod_set(str(number)) for number in range(9)], "the Workload has more than 8 pod sets"),
        (
            [pod_set("a", note="x" * 9000), pod_set("b", note="x" * 9000)],
            "characters together; the limit is 16384",
        ),
    ],
)
def test_a_workload_that_can_never_be_placed_is_told_why(sets: list[Body], text: str) -> None:
    with pytest.raises(WorkloadUnfit) as raised:
        gang_of(read_workload(workload("train", *sets)))
    assert text in str(raised.value)


def test_annotations_of_the_check_are_not_a_users_to_write() -> None:
    body = workload("train", pod_set())
    body["spec"]["podSets"][0]["template"]["metadata"]["annotations"][ANNOTATION_GROUP] = "{}"
    with pytest.raises(WorkloadUnfit, match=r"has the annotation ostler\.dev/cells-group or .* remove it"):
        gang_of(read_workload(body))


def test_the_answer_ties_the_pods_to_their_cells() -> None:
    body = workload("train", pod_set("web", wants_cells=False), pod_set("worker", 2))
    read, found = read_workload(body), info(("n0", tuple(range(8))), ("n1", tuple(range(8))))
    answer = placed(read, gang(body), found, OURS)[CHECK]
    assert answer.state is CheckState.READY
    assert answer.message == (
        "team/train (A, priority 0, 2 x 8 GPUs) fits now; n0: GPU 0,1,2,3,4,5,6,7; n1: GPU 0,1,2,3,4,5,6,7"
    )
    (update,) = answer.updates
    assert update["name"] == "worker"
    annotations = update["annotations"]
    assert isinstance(annotations, dict)
    # A pod of the template reads the same gang.
    template = body["spec"]["podSets"][1]["template"]["metadata"]["annotations"]
    spec = read_pod_spec({**template, ANNOTATION_GROUP: str(annotations[ANNOTATION_GROUP])}, "team", "train-0")
    assert spec == gang(body).spec
    # And a restarted replica finds the cells.
    body["status"]["admissionChecks"][0] |= {"state": "Ready", "podSetUpdates": list(answer.updates)}
    again = read_workload(body)
    assert recorded_places(again, gang(body), OURS) == found


def test_only_the_first_of_two_checks_changes_the_pods() -> None:
    body = workload("train")
    body["status"]["admissionChecks"].append({"name": "second", "state": "Pending"})
    answers = placed(read_workload(body), gang(body), info(("n0", tuple(range(8)))), OURS | {"second"})
    assert [bool(each.updates) for each in answers.values()] == [True, False]
    assert {each.state for each in answers.values()} == {CheckState.READY}


def test_the_answers_of_a_gang_that_waits_or_preempts() -> None:
    body = workload("train", check={"retryCount": 2})
    read, pod = read_workload(body), gang(body)
    wait = waiting(read, pod, "insufficient capacity in virtual cluster 'A'", OURS)[CHECK]
    assert (wait.state, wait.retry_after) == (CheckState.RETRY, 40)
    assert wait.message == (
        "team/train (A, priority 0, 1 x 8 GPUs) waits: insufficient capacity in virtual cluster 'A'"
    )
    preempt = preempting(read, pod, {"n0": ("team/a", "team/b")}, OURS)[CHECK]
    assert preempt.state is CheckState.READY
    assert preempt.message == (
        "team/train (A, priority 0, 1 x 8 GPUs) fits once 2 pods ended, which it would preempt; n0: team/a, team/b"
    )
    (update,) = preempt.updates
    assert isinstance(update["annotations"], dict)
    assert list(update["annotations"]) == [ANNOTATION_GROUP]


@pytest.mark.parametrize(("retries", "seconds"), [(0, 10), (1, 20), (4, 160), (5, 300), (2**31 - 1, 300)])
def test_kueue_asks_again_later_with_every_attempt(retries: int, seconds: int) -> None:
    read = read_workload(workload(check={"retryCount": retries}))
    assert retried(read, "x", OURS)[CHECK].retry_after == seconds


def test_messages_are_one_line_and_bounded() -> None:
    read = read_workload(workload())
    message = rejected(read, "a\nb" + "x" * 5000, OURS)[CHECK].message
    assert message.startswith("a b")
    assert len(message) <= 1000


def test_cells_on_record_of_another_gang_are_none() -> None:
    found = info(("n0", (0, 1)), types=("PAIR",))
    for text in (
        "",
        "{",
        "[]",
        '{"pods": 1}',
        '{"pods": [["n0"]]}',
        '{"pods": [[1, "0", "x"]]}',
        "9" * 200_000,
        '{"pods": [["n0", "0,x", "t"]]}',
        '{"pods": [["n0", "0", [1]]]}',
        "[" * 100_000,
        write_places(found),
    ):
        updates = [{"name": "main", "annotations": {ANNOTATION_PLACES: text}}]
        read = read_workload(workload(state="Ready", check={"podSetUpdates": updates}))
        assert recorded_places(read, gang(workload()), OURS) is None


def test_places_of_a_gang_too_large_to_record_are_left_out() -> None:
    assert write_places(info(*((f"node-{number}", tuple(range(8))) for number in range(5000)))) == ""


def test_whatever_a_user_writes_is_read_or_refused() -> None:
    """No field of a Workload can make the reader fail."""
    odd: tuple[Any, ...] = (
        None,
        True,
        -1,
        1 << 70,
        1.5,
        "",
        "x",
        "\ud800",
        [],
        {},
        [[]],
        [None],
        {"name": []},
        {"a": {}},
    )
    for seed in range(300):
        chance = random.Random(seed)
        body = copy.deepcopy(workload("train", pod_set("a", 2), pod_set("b", 3), state="Ready"))
        for _ in range(chance.randint(1, 4)):
            _spoil(body, chance, odd)
        read = read_workload(body)
        assert isinstance(read, KueueWorkload)
        pod = None
        with suppress(WorkloadUnfit):
            pod = gang_of(read)
        if pod is not None:
            assert sum(each.pod_number for each in pod.spec.group.members) > 0
            recorded_places(read, pod, OURS)


def _spoil(body: Any, chance: random.Random, odd: tuple[Any, ...]) -> None:
    """Put something odd somewhere below."""
    while True:
        keys = list(body) if isinstance(body, dict) else list(range(len(body)))
        if not keys:
            return
        key = chance.choice(keys)
        inner = body[key]
        if not isinstance(inner, (dict, list)) or not inner or chance.random() < 0.15:
            body[key] = chance.choice(odd)
            return
        body = inner


def test_the_annotation_of_the_template_may_not_be_read_for_other_pods() -> None:
    """The key that Kueue gives to pods wins over a group of the spec."""
    spec = json.loads(pod_set(affinityGroup=GROUP)["template"]["metadata"]["annotations"][SPEC])
    made = json.dumps({"name": "made", "members": [{"podNumber": 1, "leafCellNumber": 8}]})
    assert read_pod_spec({ANNOTATION_SPEC: json.dumps(spec), ANNOTATION_GROUP: made}, "team", "p").group.name == "made"
