"""Nodes looked at once for all that are alike: the answer is that of looking at each."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.bodies import JsonObject
from scheduling.allocator.reading import FatalError
from scheduling.explain.cluster import cluster_of
from scheduling.explain.obstacles import ClaimHolder, ConditionFalse, Held, Obstacle, ReadValue, SelectorSource
from scheduling.explain.question import Question
from scheduling.explain.situations import Situations
from scheduling.explain.state import Kind, State, name_of
from scheduling.explain.subject import subject_of
from scheduling.explain.survey import survey
from scheduling.explain.verdict import (
    MANY,
    Explanation,
    Grain,
    NodeFinding,
    NodeOutcome,
    RequestFinding,
    SeenFinding,
    gist,
    grouped,
)
from tests.judge.generate import allocation_case
from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    MODEL,
    ROOT,
    Object,
    claim,
    device,
    gpus,
    holder,
    match,
    node,
    request,
    resource_slice,
)
from tests.making.diagnoses import diagnose
from tests.scheduling.explain.clusters import spread

XID: Object = {"key": "xid", "value": "79", "effect": "NoSchedule"}
CLAIMS = {
    "selector": claim(request("gpu", GPU, 2, f'{MODEL} == "H200"')),
    "match": claim(request("gpu", GPU, 3), constraints=[match(ROOT)]),
    "all": claim(request(allocationMode="All")),
    "two": claim(request("a", GPU, 1, f'{MODEL} == "A100"'), request("b", GPU, 2), constraints=[match(ROOT, "b")]),
}


def state_of(*objects: Object, version: str = "v1.37.0") -> State:
    kinds: dict[str, list[JsonObject]] = {}
    for each in objects:
        kinds.setdefault(str(each["kind"]), []).append(cast("JsonObject", each))
    return State(
        origin="test",
        server_version=version,
        slices=tuple(kinds.get("ResourceSlice", ())),
        claims=tuple(kinds.get("ResourceClaim", ())),
        classes=tuple(kinds.get("DeviceClass", ())),
        nodes=tuple(kinds.get("Node", ())),
    )


def answer(state: State, names: tuple[str, ...] = ()) -> Explanation:
    return survey(state, subject_of(state, Question(Kind.CLAIM, "team", "train")), names)


def random_cluster(seed: int, nodes: int, asked: Object) -> State:
    """Nodes of few kinds of devices, so that many are alike, and some share a pool."""
    dice = random.Random(seed)
    objects: list[Object] = [GPU_CLASS, asked]
    for number in range(nodes):
        name = f"node-{number}"
        devices: list[Object] = []
        for position in range(dice.randrange(1, 4)):
            more: Object = {"taints": [XID]} if dice.random() < 0.2 else {}
            root = f"{number}-{dice.randrange(2)}"
            model = dice.choice(["A100", "H200"])
            devices.append(device(f"gpu-{position}", more=more, model=model, root=root, uuid=f"{number}-{position}"))
        pool: Object = {"generation": dice.randrange(1, 4), "resourceSliceCount": 2 if dice.random() < 0.1 else 1}
        objects += [node(name), resource_slice(name, devices, pool=pool)]
        for each in devices:
            if dice.random() < 0.3:
                objects.append(holder(name, each["name"], name=f"{name}-{each['name']}"))
    return state_of(*objects)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("asked", CLAIMS)
def test_nodes_of_one_situation_have_one_finding(asked: str, seed: int) -> None:
    state = random_cluster(seed, 12, CLAIMS[asked])
    subject = subject_of(state, Question(Kind.CLAIM, "team", "train"))
    cluster = cluster_of(state)
    situations = Situations(subject.to_allocate, cluster)
    found: dict[Any, Any] = {}
    for each in state.nodes:
        finding = diagnose(subject.to_allocate, each, cluster)
        said = (finding.outcome, sorted(map(repr, (gist(one) for one in finding.requests))))
        assert found.setdefault(situations.of(each), said) == said
    assert not situations.lumps


@pytest.mark.parametrize("asked", CLAIMS)
def test_every_node_is_in_one_group_with_its_own_outcome(asked: str) -> None:
    state = random_cluster(7, 40, CLAIMS[asked])
    subject = subject_of(state, Question(Kind.CLAIM, "team", "train"))
    cluster = cluster_of(state)
    verdict = answer(state)
    assert sorted(name for group in verdict.groups for name in group.nodes) == sorted(map(name_of, state.nodes))
    for group in verdict.groups:
        assert group.finding.node == group.nodes[0]
        for name in group.nodes:
            alone = diagnose(subject.to_allocate, cast("JsonObject", state.find(Kind.NODE, name)), cluster)
            assert alone.outcome is group.finding.outcome


@settings(max_examples=60, deadline=None)
@example(48)  # Counters that nobody declared, in a pool of which no device that can be had draws on any.
@given(st.integers(0, 1_000_000))
def test_what_is_found_on_one_node_of_a_situation_holds_on_the_others(number: int) -> None:
    case = allocation_case(29, number)
    nodes, cluster = spread(case, 4, number)
    try:
        situations = Situations(case["claims"], cluster)
    except FatalError:
        return  # Claims that cannot be read, or a class that is not there: no node is looked at.
    found: dict[Any, Any] = {}
    for each in nodes:
        try:
            situation = situations.of(each)
        except FatalError:
            continue  # A device that cannot be read; then each node is looked at by itself.
        finding = diagnose(case["claims"], each, cluster, remedy=False)
        blocked = finding.outcome is NodeOutcome.BLOCKED and not situations.lumps
        said = (finding.outcome, sorted(repr(gist(one)) for one in finding.requests) if blocked else [])
        assert found.setdefault(situation, said) == said


def test_slices_that_contradict_each_other_count_in_their_order() -> None:
    """The scheduler believes one of them on how many slices there are."""
    slices = [
        resource_slice(name, [device(f"gpu-{i}")], name=f"{name}-{i}", pool={"resourceSliceCount": count})
        for name, counts in (("node-a", (2, 3)), ("node-b", (3, 2)))
        for i, count in enumerate(counts)
    ]
    state = state_of(node("node-a"), node("node-b"), GPU_CLASS, *slices, claim(request()))
    outcomes = {group.finding.node: group.finding.outcome for group in answer(state).groups}
    cluster = cluster_of(state)
    for name, outcome in outcomes.items():
        assert diagnose(state.claims, cast("JsonObject", state.find(Kind.NODE, name)), cluster).outcome is outcome
    assert len(outcomes) == 2


def test_names_serials_order_and_generations_make_no_situation() -> None:
    one = resource_slice("node-a", [device("x", model="A100", uuid="1"), device("y", model="H200", uuid="2")])
    devices = [device("p", model="H200", uuid="3"), device("q", model="A100", uuid="4")]
    other = resource_slice("node-b", devices, pool={"generation": 7})
    state = state_of(node("node-a"), node("node-b"), GPU_CLASS, one, other, CLAIMS["selector"])
    situations = Situations([cast("JsonObject", CLAIMS["selector"])], cluster_of(state))
    assert situations.of(state.nodes[0]) == situations.of(state.nodes[1])


def test_what_a_selector_reads_makes_a_situation() -> None:
    slices = [resource_slice(f"node-{model}", gpus(1, model=model)) for model in ("A100", "A30")]
    state = state_of(node("node-A100"), node("node-A30"), GPU_CLASS, *slices, CLAIMS["selector"])
    assert [group.nodes for group in answer(state).groups] == [("node-A100",), ("node-A30",)]


def test_serials_that_are_read_are_told_of_the_first_node() -> None:
    asked = claim(request("gpu", GPU, 1, f'device.attributes["{GPU}"].uuid == "none"'))
    names = [f"node-{i}" for i in range(20)]
    slices = [resource_slice(name, [device(f"g{i}", uuid=f"{name}-{i}") for i in range(4)]) for name in names]
    (group,) = answer(state_of(*map(node, names), GPU_CLASS, *slices, asked)).groups
    assert len(group.nodes) == 20
    assert not group.exact


def test_an_older_cluster_lacks_what_its_devices_need() -> None:
    devices = [device("gpu-0", more={"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]})]
    state = state_of(node("a"), GPU_CLASS, resource_slice("a", devices), claim(request()), version="v1.35.0")
    verdict = answer(state)
    (obstacle,) = verdict.groups[0].finding.requests[0].obstacles
    assert obstacle.kind == "feature-off"
    assert any(note.startswith("the cluster is v1.35.0;") for note in verdict.notes)


def finding(name: str, *obstacles: Obstacle, usable: int = 0) -> NodeFinding:
    asked = RequestFinding("a/b", "gpu", 8, 8, 8, usable, obstacles)
    return NodeFinding(name, NodeOutcome.BLOCKED, requests=(asked,))


def test_groups_become_coarser_only_where_there_would_be_too_many() -> None:
    def false(value: str) -> Obstacle:
        return ConditionFalse(("g",), 1, SelectorSource("class", "c", 0), "x", (ReadValue("p", value),))

    few = [SeenFinding(f"n{i}", finding(f"n{i}", false(str(i)))) for i in range(MANY)]
    many = [SeenFinding(f"n{i}", finding(f"n{i}", false(str(i)))) for i in range(MANY + 1)]
    assert len(grouped(few)) == MANY
    assert all(group.exact for group in grouped(few))
    (one,) = grouped(many)
    assert (len(one.nodes), one.exact) == (MANY + 1, False)


def test_the_nearest_group_is_first_and_shows_its_nearest_node() -> None:
    def held(count: int) -> Obstacle:
        names = tuple(f"g{i}" for i in range(count))
        return Held(names, count, (ClaimHolder("a/c"),) * count)

    far = [SeenFinding(f"n{i}", finding(f"n{i}", held(8 - i % 8), usable=i % 8)) for i in range(4 * MANY)]
    groups = grouped(far)
    assert groups[0].finding.requests[0].usable == 7
    assert gist(groups[0].finding, Grain.KINDS) == gist(groups[-1].finding, Grain.KINDS)
