"""Snapshots: what they keep and replace, and that the answer stays the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.bodies import Json, JsonObject, object_at
from ostler.explain.files import read_files
from ostler.explain.kept import NameGroup
from ostler.explain.snapshot import AnonymousState, anonymous, as_json, as_yaml, reduced
from scheduling.explain.nodes import hindrances
from scheduling.explain.question import Question
from scheduling.explain.state import (
    BadQuestion,
    Kind,
    MissingKind,
    State,
    key_of,
    name_of,
    namespace_of,
    objects_at,
)
from scheduling.explain.subject import subject_of
from tests.making.slices import DRIVER
from tests.making.snapshots import SECRET, small_state
from tests.scheduling.explain.cluster import status
from tests.scheduling.explain.objects import (
    allocated,
    claim,
    device_class,
    node,
    pod,
    resource_slice,
    template,
)


def test_only_what_decides_allocations_is_kept() -> None:
    state = reduced(small_state())
    assert SECRET not in as_yaml(state)
    assert state.pods[0] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "team", "uid": "u-1"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "held"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
    }
    assert state.nodes[0]["spec"] == {"unschedulable": True}
    assert state.nodes[0]["status"] == {
        "conditions": [{"type": "Ready", "status": "True", "message": "x"}],
        "allocatable": {"example.com/gpu": "2"},
    }
    assert state.slices == small_state().slices


@pytest.mark.parametrize(("form", "name"), [(as_yaml, "a.yaml"), (as_json, "a.json")])
def test_a_snapshot_reads_back_as_it_was(form: Callable[..., str], name: str, tmp_path: Path) -> None:
    state = reduced(small_state())
    (tmp_path / name).write_text(form(state, taken_at="2026-01-01T00:00:00+00:00"))
    back = read_files([str(tmp_path / name)]).state
    for kind in Kind:
        if kind is not Kind.TAINT_RULE:
            assert [key_of(kind, body) for body in back.of(kind)] == [key_of(kind, body) for body in state.of(kind)]
    assert (back.slices, back.pods, back.nodes) == (state.slices, state.pods, state.nodes)
    assert (back.server_version, back.truncated, back.missing) == ("v1.37.0", ("only some",), state.missing)
    assert back.whole == {Kind.NODE}


def test_texts_that_look_like_other_things_stay_texts(tmp_path: Path) -> None:
    odd = [
        "y",
        "no",
        "1e3",
        "0o7",
        "010",
        "2026-01-01",
        "null",
        "~",
        "a: b",
        "- x",
        "\x7f",
        "ä",
        "1:30",
        "<<",
        "=",
        "a#b ",
    ]
    labels: dict[str, Json] = {f"k{number}": text for number, text in enumerate(odd)}
    (tmp_path / "a.yaml").write_text(as_yaml(State(nodes=(node("node-1", labels),))))
    (body,) = read_files([str(tmp_path / "a.yaml")]).state.nodes
    assert object_at(body, "metadata", "labels") == labels


def test_names_of_workloads_are_replaced_everywhere_alike() -> None:
    made = anonymous(small_state())
    text = as_yaml(made.state)
    assert not [word for word in ("train", "team", "held", "u-1", "uid-train", SECRET) if word in text]
    assert "node-1" in text
    assert made.names[NameGroup.POD] == {"train": "pod-01"}
    assert objects_at(made.state.claims[0], "status", "reservedFor")[0]["name"] == "pod-01"
    assert objects_at(made.state.pods[0], "spec", "resourceClaims") == (
        {"name": "use-01", "resourceClaimName": "claim-01"},
    )
    assert made.state.claims[0]["metadata"]["name"] == "claim-01"  # type: ignore[index, call-overload]
    assert made.state.missing == (MissingKind(Kind.TAINT_RULE, "devicetaintrules could not be read"),)


def test_names_and_labels_of_nodes_are_replaced_on_demand() -> None:
    state = small_state()
    labels: dict[str, Json] = {
        "zone": "berlin",
        "kubernetes.io/hostname": "node-1",
        "kubernetes.io/arch": "arm64",
        "n": "5",
    }
    state = state.with_objects(Kind.NODE, (node("node-1", labels), node("node-2")))
    text = as_yaml(anonymous(state, nodes=True).state)
    assert "berlin" not in text
    assert "zone" not in text
    (first, _) = anonymous(state, nodes=True).state.nodes
    found = object_at(first, "metadata", "labels")
    assert found == {
        "label-02": "value-01",
        "kubernetes.io/hostname": "node-01",
        "kubernetes.io/arch": "arm64",
        "label-01": "5",
    }
    rule = anonymous(state, nodes=True).state.taint_rules[0]
    assert object_at(rule, "spec", "deviceSelector") == {"pool": "pool-01"}


def test_opaque_parameters_are_replaced() -> None:
    config: list[Json] = [{"opaque": {"driver": DRIVER, "parameters": {"key": SECRET}}}]
    body = claim("c")
    body["spec"] = {"devices": {**object_at(body, "spec", "devices"), "config": config}}
    state = State(claims=(body,), classes=(device_class("gpu", config=config),))
    for made in (reduced(state), anonymous(state).state):
        assert SECRET not in as_yaml(made)
        assert DRIVER in as_yaml(made)


def test_labels_that_only_look_like_kubernetes_own_and_long_numbers_are_replaced() -> None:
    labels: dict[str, Json] = {
        "acme-kubernetes.io/x": "1",
        "topology.kubernetes.io/zone": "berlin",
        "account": "123456789012",
        "slots": "-12",
    }
    (body,) = anonymous(State(nodes=(node("n", labels),)), nodes=True).state.nodes
    assert object_at(body, "metadata", "labels") == {
        "label-02": "1",
        "topology.kubernetes.io/zone": "value-02",
        "label-01": "value-01",
        "label-03": "-12",
    }


def test_what_pods_name_themselves_is_replaced() -> None:
    conditions: list[Json] = [
        {"type": "acme.example/ready-for-secret-project", "status": "True"},
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"},
    ]
    body = status(pod("p", schedulerName="acme"), conditions=conditions)
    (made,) = anonymous(State(pods=(body,))).state.pods
    assert object_at(made, "status")["conditions"] == [{"type": "PodScheduled", "status": "False"}]
    assert object_at(made, "spec")["schedulerName"] == "scheduler-01"
    (plain,) = anonymous(State(pods=(pod("p", schedulerName="default-scheduler"),))).state.pods
    assert object_at(plain, "spec")["schedulerName"] == "default-scheduler"


# The same answers: random small clusters, asked before and after.

LETTERS = st.sampled_from(["a", "b", "c", "zeta", "alpha-1", "alpha-10", "alpha-2"])
LABELS: st.SearchStrategy[dict[str, Json]] = st.dictionaries(
    st.sampled_from(["zone", "tier", "kubernetes.io/hostname"]), st.sampled_from(["x", "y", "7"])
)
ZONES = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"])


@st.composite
def states(draw: st.DrawFn) -> State:
    spaces = draw(st.lists(LETTERS, min_size=1, max_size=2, unique=True))
    place = st.tuples(st.sampled_from(spaces), LETTERS)
    hosts = draw(st.lists(LETTERS, min_size=1, max_size=3, unique=True))
    taint: st.SearchStrategy[Json] = st.fixed_dictionaries(
        {"key": st.sampled_from(["zone", "own"]), "value": LETTERS, "effect": st.just("NoSchedule")}
    )
    nodes = [
        node(
            host, draw(LABELS), spec={"unschedulable": draw(st.booleans()), "taints": draw(st.lists(taint, max_size=1))}
        )
        for host in hosts
    ]
    slices = [resource_slice(f"{host}-gpu", host, "gpu-0", pool=draw(LETTERS)) for host in hosts]
    claims = []
    for space, name in draw(st.lists(place, max_size=4, unique=True)):
        made = claim(name, space, uid=f"uid-{space}-{name}")
        held = draw(st.booleans())
        claims.append(allocated(made, (draw(LETTERS), "gpu-0"), pods=(draw(LETTERS),)) if held else made)
    templates = [template(name, space) for space, name in draw(st.lists(place, max_size=2, unique=True))]
    pods = [draw(pods_in(space, name)) for space, name in draw(st.lists(place, min_size=1, max_size=3, unique=True))]
    return State(
        slices=tuple(slices), claims=tuple(claims), nodes=tuple(nodes), templates=tuple(templates), pods=tuple(pods),
        classes=(device_class("gpu"),),
    )  # fmt: skip


@st.composite
def pods_in(draw: st.DrawFn, space: str, name: str) -> JsonObject:
    kinds = st.sampled_from(["resourceClaimName", "resourceClaimTemplateName"])
    uses: list[Json] = [
        {"name": own, draw(kinds): draw(LETTERS)} for own in draw(st.lists(LETTERS, max_size=3, unique=True))
    ]
    operator = draw(ZONES)
    values: list[Json] = [] if "Exist" in operator else [draw(st.sampled_from(["x", "y", "5"]))]
    term: JsonObject = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    body = pod(
        name,
        space,
        uid=f"uid-{space}-{name}",
        resourceClaims=uses,
        nodeSelector=draw(LABELS),
        tolerations=[{"key": "own", "value": draw(LETTERS)}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
    )
    if draw(st.booleans()):
        body["spec"] = {**object_at(body, "spec"), "nodeName": draw(LETTERS)}
    statuses: list[Json] = [{"name": draw(LETTERS), "resourceClaimName": draw(LETTERS)}]
    return status(body, phase="Pending", resourceClaimStatuses=statuses) if draw(st.booleans()) else body


def told(state: State, space: str, name: str) -> object:
    """What is found out about a pod, without names."""
    subject = subject_of(state, Question(Kind.POD, space, name))
    assert subject.pod is not None
    where = [[(one.ground, one.blocking) for one in hindrances(subject.pod, on)] for on in state.nodes]
    return (
        [object_at(one, "spec") for one in subject.to_allocate],
        [
            [result["device"] for result in objects_at(one, "status", "allocation", "devices", "results")]
            for one in subject.allocated
        ],
        len(subject.missing),
        len(subject.notes),
        where,
    )


@given(states(), st.booleans())
def test_a_snapshot_with_other_names_gives_the_same_answers(state: State, nodes: bool) -> None:
    plain, made = reduced(state), anonymous(state, nodes=nodes)
    names = made.names
    for body in state.pods:
        alias = (names[NameGroup.NAMESPACE][namespace_of(body)], names[NameGroup.POD][name_of(body)])
        assert told(state, namespace_of(body), name_of(body)) == told(plain, namespace_of(body), name_of(body))
        assert told(state, namespace_of(body), name_of(body)) == told(made.state, *alias)


@given(states(), st.booleans())
def test_names_are_replaced_one_by_one_and_in_their_order(state: State, nodes: bool) -> None:
    made: AnonymousState = anonymous(state, nodes=nodes)
    for table in made.names.values():
        aliases = [table[name] for name in sorted(table)]
        assert aliases == sorted(set(aliases))
    for kind in Kind:
        assert len({key_of(kind, body) for body in made.state.of(kind)}) == len(state.of(kind))
    assert [s["spec"]["devices"] for s in made.state.slices] == [s["spec"]["devices"] for s in state.slices]  # type: ignore[index, call-overload]


# The command.


def test_a_question_about_a_replaced_name_finds_nothing() -> None:
    with pytest.raises(BadQuestion, match="there is no pod team/train"):
        subject_of(anonymous(small_state()).state, Question(Kind.POD, "team", "train"))
