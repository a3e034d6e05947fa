"""Placing where it is not a matter of counting: errors of the allocator, devices of several nodes, kinds of pods."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.explain.question import Question
from scheduling.explain.state import Kind, State
from scheduling.explain.subject import subject_of
from scheduling.explain.survey import survey
from scheduling.fit.answer import FitAnswer
from scheduling.fit.fitting import FitOptions, fit
from scheduling.fit.wanted import PodSource, wanted_of
from tests.making.clusters import GPU_CLASS, MODEL, Object, device, gpus, node, request, resource_slice, thing

H100 = f'{MODEL} == "H100"'


def template(*expressions: str, name: str = "one", count: int = 1) -> Object:
    spec = {"spec": {"devices": {"requests": [request("gpu", GPU_CLASS["metadata"]["name"], count, *expressions)]}}}
    return thing("ResourceClaimTemplate", name, spec, namespace="team")


def pod(name: str, *, of: str = "one", **metadata: str) -> Object:
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": of}],
    }
    return thing("Pod", name, spec, namespace="team", **metadata)


def state(templates: list[Object], pods: list[Object], nodes: list[Object], slices: list[Object]) -> State:
    return State("a test", "", tuple(slices), (), (GPU_CLASS,), tuple(nodes), tuple(pods), tuple(templates))


def sources(*counts: tuple[str, int]) -> list[PodSource]:
    return [PodSource(Question(Kind.POD, "team", name), count) for name, count in counts]


def by_node(answer: FitAnswer) -> dict[str, list[str]]:
    return {each.name: [one.name for one in each.pods] for each in answer.nodes}


def test_a_node_on_which_a_selector_fails_keeps_the_pod_from_every_node() -> None:
    good, bad = resource_slice("node-a", gpus(1, model="H100")), resource_slice("node-b", gpus(1))
    made = state([template(H100)], [pod("a")], [node("node-a"), node("node-b")], [good, bad])
    answer = fit(made, sources(("a", 1)))
    assert (answer.placed, answer.leftovers[0].first) == (0, "team/a")
    assert answer.why is not None
    assert [type(each).__name__ for each in answer.why.stops] == ["SelectorBroken"]
    assert not survey(made, subject_of(made, Question(Kind.POD, "team", "a"))).fits


def test_an_error_that_only_the_second_pod_meets_stops_the_second() -> None:
    mixed = [device("gpu-0", model="H100"), device("gpu-1")]
    made = state([template(H100)], [pod("a")], [node("node-a")], [resource_slice("node-a", mixed)])
    answer = fit(made, sources(("a", 3)))
    assert by_node(answer) == {"node-a": ["team/a-0"]}
    assert answer.leftovers[0].count == 2
    assert answer.why is not None
    assert [type(each).__name__ for each in answer.why.stops] == ["SelectorBroken"]


def test_an_error_is_gone_when_the_device_that_causes_it_is_taken() -> None:
    mixed = [device("gpu-0"), device("gpu-1", model="H100")]
    made = state(
        [template(H100), template(name="any")],
        [pod("picky"), pod("any", of="any"), pod("late")],
        [node("node-a")],
        [resource_slice("node-a", mixed)],
    )
    answer = fit(made, sources(("picky", 1), ("any", 1), ("late", 1)))
    assert [each.first for each in answer.leftovers] == ["team/picky"]
    assert by_node(answer) == {"node-a": ["team/any", "team/late"]}


def test_a_node_that_has_no_room_left_is_not_asked_for_devices() -> None:
    full = {**node("node-b"), "status": {"allocatable": {"cpu": "1", "pods": "1"}}}
    slices = [resource_slice("node-a", gpus(2, model="H100")), resource_slice("node-b", gpus(1))]
    there = pod("there", of="none")
    there["spec"] |= {"resourceClaims": [], "nodeSelector": {"kubernetes.io/hostname": "node-b"}}
    pods = [pod("early"), there, pod("late")]
    made = state([template(H100)], pods, [node("node-a"), full], slices)
    answer = fit(made, sources(("early", 1), ("there", 1), ("late", 1)))
    assert [each.first for each in answer.leftovers] == ["team/early"]
    assert by_node(answer) == {"node-a": ["team/late"], "node-b": ["team/there"]}


def test_devices_that_several_nodes_reach_are_given_once() -> None:
    network = resource_slice("net", gpus(3), nodeName=None, allNodes=True)
    made = state([template()], [pod("a")], [node("node-a"), node("node-b")], [network])
    for spread, expected in (
        (False, {"node-a": ["team/a-0", "team/a-1", "team/a-2"], "node-b": []}),
        (True, {"node-a": ["team/a-0", "team/a-2"], "node-b": ["team/a-1"]}),
    ):
        answer = fit(made, sources(("a", 5)), FitOptions(spread=spread))
        assert by_node(answer) == expected
        assert answer.leftovers[0].count == 2
        given = [
            device for each in answer.nodes for one in each.pods for claim in one.claims for device in claim.devices
        ]
        assert sorted(name for _, _, name in given) == ["gpu-0", "gpu-1", "gpu-2"]


@pytest.mark.parametrize("uids", [("", ""), ("uid-a", "uid-b")])
def test_pods_that_differ_in_names_alone_are_one_kind(uids: tuple[str, str]) -> None:
    more: list[dict[str, Any]] = [{"uid": uid} if uid else {} for uid in uids]
    pods = [pod("a", **more[0]), pod("b", **more[1]), pod("c", of="two")]
    made = state(
        [template(), template(name="two", count=2)], pods, [node("node-a")], [resource_slice("node-a", gpus(4))]
    )
    first, second, other = wanted_of(made, sources(("a", 1), ("b", 1), ("c", 1)), copies=1)
    assert first.kind is second.kind is not other.kind
    answer = fit(made, sources(("a", 1), ("b", 1), ("c", 1)))
    names = [claim.name for each in answer.nodes for one in each.pods for claim in one.claims]
    assert names == ["a-gpu", "b-gpu", "c-gpu"]


def test_a_pod_whose_claim_was_made_already_is_a_kind_of_its_own() -> None:
    claim = thing("ResourceClaim", "a-gpu-x", {"devices": {"requests": [request()]}}, namespace="team", uid="uid-c")
    claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "a", "uid": "uid-a", "controller": True}]
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    pods = [pod("a", uid="uid-a"), pod("b", uid="uid-b")]
    made = state([template()], pods, [node("node-a")], [resource_slice("node-a", gpus(2))])
    made = made.with_objects(Kind.CLAIM, (claim,))
    answer = fit(made, sources(("a", 1), ("b", 1)))
    assert [one.claims[0].name for one in answer.nodes[0].pods] == ["a-gpu-x", "b-gpu"]


def test_nodes_that_only_slices_name_are_known() -> None:
    made = state([template()], [pod("a")], [], [resource_slice("node-a", gpus(1))])
    answer = fit(made, sources(("a", 1)))
    assert by_node(answer) == {"node-a": ["team/a"]}
    assert answer.notes == (
        "no Node objects were read: the nodes are those that slices name, and their labels are unknown",
    )
