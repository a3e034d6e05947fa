"""What users create costs the extender a bounded part of its memory, and never somebody else's pods."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ostler.extender.pods import MOST_VOLUMES, PodReader, ReadingTime, ReadPod
from ostler.extender.records import MOST_DEVICES, MOST_RECORD, MOST_VERSIONS, GangRecords, check_record
from scheduling.cells.decision import CellsUserError
from scheduling.cells.pod import (
    AffinityGroupSpec,
    BindInfo,
    GroupMember,
    GroupMemberPlacement,
    PodPlacement,
    PodSchedulingSpec,
    read_bind_info,
)
from tests.making.extender import RunningExtender, cells, extender
from tests.making.extender_cluster import ClusterApi, Object, pod
from tests.waiting import until

GROUP = "hivedscheduler.microsoft.com"
SPEC, RECORD = f"{GROUP}/pod-scheduling-spec", f"{GROUP}/pod-bind-info"


def read(body: Object, *, is_bound: bool = False) -> ReadPod:
    found = PodReader(lambda _: is_bound).read(body)
    assert isinstance(found, ReadPod)
    return found


def gang(name: str, *members: tuple[int, int]) -> dict[str, Any]:
    return {"affinityGroup": {"name": name, "members": [{"podNumber": p, "leafCellNumber": n} for p, n in members]}}


def place(node: str, *indices: int) -> PodPlacement:
    return PodPlacement(node, indices, ("G-NODE",) * len(indices))


def info(*places: PodPlacement) -> BindInfo:
    return BindInfo(places[0].node, places[0].indices, "G-NODE", (GroupMemberPlacement(places),))


def spec(name: str = "g", pods: int = 1, leaves: int = 1) -> PodSchedulingSpec:
    group = AffinityGroupSpec(name, (GroupMember(pods, leaves),))
    return PodSchedulingSpec("A", 0, "", "G", leaves, False, True, group)


def bound(name: str, *places: PodPlacement, **more: Any) -> Object:
    annotations = {RECORD: info(*places).write()}
    return pod(name, len(places[0].indices), node=places[0].node, annotations=annotations, **more)


def test_of_a_pod_that_is_not_bound_its_record_is_not_read() -> None:
    waiting = read(pod("p", annotations={RECORD: "x" * 200_000}))
    assert waiting.texts.spec is not None
    assert (waiting.texts.record, waiting.texts.record_fault) == (None, "")


def test_annotations_of_a_pod_that_is_known_as_bound_are_not_read_again() -> None:
    texts = read(bound("p", place("n0", 0)), is_bound=True).texts
    assert (texts.spec, texts.fault, texts.record, texts.record_fault) == (None, "", None, "")


def test_a_pod_without_a_gang_is_one_of_its_own_also_if_others_have_the_same_text() -> None:
    reader = PodReader(lambda _: False)
    found = [reader.read(pod(name)) for name in ("p", "q")]
    names = [each.texts.spec.group.name for each in found if isinstance(each, ReadPod) and each.texts.spec]
    assert names == ["default/p", "default/q"]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"virtualCluster": "v" * 254}, "virtualCluster has 254 characters; the limit is 253"),
        ({"pinnedCellId": "v" * 254}, "pinnedCellId has 254 characters; the limit is 253"),
        ({"leafCellType": "v" * 254}, "leafCellType has 254 characters; the limit is 253"),
        (gang("g" * 513, (1, 8)), "affinityGroup.name has 513 characters; the limit is 512"),
        (
            gang("g", *((1, 8 + size) for size in range(33))),
            "affinityGroup.members has 33 different leafCellNumbers; the limit is 32",
        ),
    ],
)
def test_a_spec_that_would_cost_much_is_refused(keys: dict[str, Any], problem: str) -> None:
    texts = read(pod("p", spec=keys)).texts
    assert (texts.spec, texts.fault) == (None, f"annotation {SPEC}: {problem}")


def test_ten_thousand_pods_with_the_largest_annotations_take_some_megabytes() -> None:
    members = ",".join(f"{{podNumber: 1, leafCellNumber: {1 + each % 32}}}" for each in range(430))
    texts = [
        f"{{virtualCluster: {number:0253}, leafCellNumber: 1, affinityGroup: {{name: g, members: [{members}]}}}}"
        for number in range(4)
    ]
    bodies = [pod(f"p{number}", annotations={SPEC: text, RECORD: text * 16}) for number, text in enumerate(texts)]
    reader = PodReader(lambda _: False)
    assert all(15_000 < len(text) <= 16_384 for text in texts)
    read(bodies[0])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [reader.read(body) for body in bodies]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(isinstance(each, ReadPod) and each.texts.spec is not None for each in kept)
    assert (after - before) / len(bodies) < 8_000


def test_with_many_volumes_the_scheduler_alone_binds(running: RunningExtender) -> None:
    names = [f"data-{number}" for number in range(MOST_VOLUMES + 1)]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    many = pod("p", pod_spec={"volumes": volumes})
    facts = read(many).facts
    assert (len(facts.volumes), facts.has_more, facts.needs_preparation) == (MOST_VOLUMES, True, True)
    for name in names:
        claim = {"metadata": {"name": name, "namespace": "default"}, "spec": {"volumeName": name}}
        running.api.put({"kind": "PersistentVolumeClaim", **claim, "status": {"phase": "Bound"}})
    running.add(many)
    for _ in range(5):
        running.filter(many, "n0", "n1")
    until(lambda: [each for each in running.api.all("Event") if each["reason"] == "ForceBindRefused"], "it is told")
    (event,) = [each for each in running.api.all("Event") if each["reason"] == "ForceBindRefused"]
    assert "because it has more than 16 volumes, which the scheduler must prepare first" in event["message"]
    assert running.api.bindings == []


def test_a_pod_takes_no_place_of_a_gang_in_another_namespace(running: RunningExtender) -> None:
    running.place(pod("first", 2, spec=gang("g", (2, 2))), "n0", "n1")
    thief = pod("thief", 2, spec=gang("g", (2, 2)))
    thief["metadata"]["namespace"] = "elsewhere"
    running.add(thief)
    expected = "the gang 'g' belongs to namespace default, whose places this pod would take; name another gang"
    assert expected in running.filter(thief, "n0", "n1")["Error"]
    running.place(pod("second", 2, spec=gang("g", (2, 2))), "n0", "n1")


def test_the_pods_of_a_gang_share_one_record() -> None:
    records = GangRecords()
    first, second = place("n0", 0), place("n0", 1)
    kept = [records.take("ns", spec(pods=2), read_bind_info({RECORD: info(first, second).write()})) for _ in range(2)]
    assert kept[0].members is kept[1].members
    assert records.owner("g") == "ns"
    records.give_back("g", kept[0])
    assert records.owner("g") == "ns"
    records.give_back("g", kept[1])
    assert records.owner("g") == ""


def test_what_the_records_of_a_namespace_name_has_a_bound_and_comes_back() -> None:
    records = GangRecords()
    huge = spec("huge", 1, MOST_DEVICES)
    expected = (
        "the bound pods of namespace ns name more than 200000 devices in their records and gangs; "
        "delete those whose annotations are wrong"
    )
    with pytest.raises(CellsUserError) as refused:
        records.take("ns", huge, info(place("n0", 0)))
    assert str(refused.value) == expected
    half = spec("half", 1, MOST_DEVICES // 2)
    kept = records.take("ns", half, info(place("n0", 0)))
    with pytest.raises(CellsUserError):
        records.take("ns", spec("other", 1, MOST_DEVICES // 2), info(place("n0", 0)))
    records.take("elsewhere", spec("other", 1, MOST_DEVICES // 2), info(place("n0", 0)))
    records.give_back("half", kept)
    records.take("ns", spec("third", 1, MOST_DEVICES // 2), info(place("n0", 0)))


def test_a_gang_with_ever_new_records_is_refused() -> None:
    records = GangRecords()
    for number in range(MOST_VERSIONS):
        records.take("ns", spec(), info(place("n0", number)))
    with pytest.raises(CellsUserError) as refused:
        records.take("ns", spec(), info(place("n0", MOST_VERSIONS)))
    expected = "the pods of its gang 'g' have 64 different records; delete those whose record is wrong"
    assert str(refused.value) == expected


def test_a_gang_whose_record_fits_no_annotation_is_refused_before_any_pod_has_a_place(running: RunningExtender) -> None:
    large = pod("p", 1, priority=-1, spec=gang("large", (3000, 1)))
    running.add(large)
    said = running.filter(large, "n0", "n1")["Error"]
    expected = (
        "the gang 'large' has 3000 pods; each pod's annotations hold the places of all, for which there are "
        "229376 bytes; make several gangs of it"
    )
    assert expected in said
    assert running.groups() == {}
    with pytest.raises(CellsUserError) as refused:
        check_record("large", info(*(place(f"n{number}", 0) for number in range(2500))))
    size = len(info(*(place(f"n{number}", 0) for number in range(2500))).write())
    assert size > MOST_RECORD
    assert str(refused.value) == expected.replace("3000 pods", f"2500 pods, whose places have {size} bytes")


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        # A list of so many devices would have 16 GiB.
        (((1, 1), (1, 2**31 - 1)), "name more than 200000 devices in their records and gangs"),
        (((99_999, 1), (1, 2)), "name more than 200000 devices in their records and gangs"),
    ],
)
def test_a_record_of_an_absurd_gang_costs_its_own_pod_alone(
    api: ClusterApi, tmp_path: Path, sizes: tuple[tuple[int, int], ...], problem: str
) -> None:
    api.put(bound("strange", place("n0", 0), spec=gang("strange", *sizes)))
    api.put(bound("good", place("n1", 0)))
    with extender(tmp_path, api, cells(2)) as running:
        assert running.groups().keys() == {"default/good"}
        until(lambda: [each for each in api.all("Event") if each["reason"] == "CellsNotRecovered"], "it is told")
        (event,) = [each for each in api.all("Event") if each["reason"] == "CellsNotRecovered"]
        assert event["involvedObject"]["name"] == "strange"
        assert problem in event["message"]


def test_a_namespace_whose_annotations_take_long_to_read_waits_and_others_do_not() -> None:
    now = {"cpu": 0.0, "clock": 0.0}

    def tick() -> float:
        # Two looks at each pod: so each takes six seconds.
        now["cpu"] += 6.0
        return now["cpu"]

    reader = PodReader(lambda _: False, ReadingTime(tick, lambda: now["clock"]))

    def fault(name: str, namespace: str = "default") -> str:
        body = pod(name)
        body["metadata"]["namespace"] = namespace
        found = reader.read(body)
        assert isinstance(found, ReadPod)
        assert (found.texts.spec is None) is bool(found.texts.fault)
        return found.texts.fault

    assert fault("p") == fault("q") == ""
    assert fault("r") == (
        "the annotations of the pods of namespace default take more than 10 s to read, and no more of them are read "
        "for now; delete pods with strange annotations, and change or create this one again"
    )
    assert fault("r", "other") == ""
    # 12 s were spent, of which one in twenty is forgiven each second.
    now["clock"] = 39.0
    assert fault("r") != ""
    now["clock"] = 41.0
    assert fault("r") == ""
