"""What the extender reads and writes: names in any case, types that are checked, answers within the question."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ostler.extender.wire import (
    MOST_NODES,
    ExtenderError,
    FilterArguments,
    PodIdentity,
    bind_answer,
    decoded,
    filter_answer,
    filter_failure,
    preempt_answer,
    prioritize_answer,
    read_bind,
    read_filter,
    read_preempt,
)

POD: dict[str, Any] = {"metadata": {"uid": "u", "namespace": "ns", "name": "p"}}
WHO = PodIdentity("u", "ns", "p")


def asked(*nodes: str) -> FilterArguments:
    return FilterArguments(WHO, nodes, None)


@pytest.mark.parametrize("fold", [str, str.lower, str.upper])
def test_keys_are_read_in_any_case(fold: Callable[[str], str]) -> None:
    metadata = {fold(key): value for key, value in POD["metadata"].items()}
    body: Any = {fold("Pod"): {fold("metadata"): metadata}, fold("NodeNames"): ["a", "b", "a"], fold("Nodes"): None}
    assert read_filter(body) == asked("a", "b")
    bind: Any = {fold("PodName"): "p", fold("PodNamespace"): "ns", fold("PodUID"): "u", fold("Node"): "a"}
    assert read_bind(bind).node == "a"
    victims: Any = {
        fold("Pod"): {"metadata": POD["metadata"]},
        fold("NodeNameToMetaVictims"): {"A": {fold("NumPDBViolations"): 2}},
    }
    assert read_preempt(victims).nodes == {"A": 2}


def test_whole_nodes_are_answered_as_they_were_sent() -> None:
    nodes: list[Any] = [{"metadata": {"name": name}, "spec": {"x": 1}} for name in "ab"]
    arguments = read_filter({"Pod": POD, "Nodes": {"items": nodes}})
    assert filter_answer(arguments, ("b",)) == {
        "Nodes": {"metadata": {}, "items": [nodes[1]]},
        "NodeNames": None,
        "FailedNodes": None,
        "Error": "",
    }


def test_an_answer_names_only_nodes_of_the_question() -> None:
    answer = filter_answer(asked("a", "b"), ("a", "x"), failed={"x": "r", "b": "full"}, unresolvable={"y": "r"})
    assert answer == {"Nodes": None, "NodeNames": ["a"], "FailedNodes": {"b": "full"}, "Error": ""}
    assert filter_answer(asked("a"), unresolvable={"a": "r"})["FailedAndUnresolvableNodes"] == {"a": "r"}


def test_prioritize_favours_the_node_of_the_placement() -> None:
    assert prioritize_answer(asked("a", "b"), "b") == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}]


def test_preempt_answers_victims_by_uid_with_the_disruption_budgets_that_were_sent() -> None:
    arguments = read_preempt({"Pod": POD, "NodeNameToVictims": {"a": {"Pods": [], "NumPDBViolations": 3}, "b": None}})
    assert preempt_answer(arguments, "a", ["v2", "v1"]) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v1"}, {"UID": "v2"}], "NumPDBViolations": 3}}
    }
    assert preempt_answer(arguments) == {"NodeNameToMetaVictims": None}


def test_errors_name_their_code_and_whose_they_are() -> None:
    mine, ours = ExtenderError("no such thing"), ExtenderError("broken", 500)
    assert bind_answer(mine) == {"Error": "Code: 400, Message: hivedscheduler: User Error: no such thing"}
    assert filter_failure(ours)["Error"] == "Code: 500, Message: hivedscheduler: Platform Error: broken"


EMPTY = "; it must be text that is not empty"
ARGUMENTS = "; send the scheduler's arguments"
HUGE: dict[str, Any] = {"Pod": POD, "NodeNames": [""] * (MOST_NODES + 1)}
FAULTS: list[tuple[Callable[[Any], object], Any, str]] = [
    (read_filter, {"NodeNames": []}, "Pod is missing; it must be the Pod to schedule"),
    (read_filter, {"Pod": [], "NodeNames": []}, "Pod is a list; it must be the Pod to schedule"),
    (
        read_filter,
        {"Pod": {"metadata": {"uid": "u", "name": "p"}}, "NodeNames": []},
        "Pod.metadata.namespace is missing" + EMPTY,
    ),
    (read_filter, {"Pod": {"metadata": {"uid": 7}}, "NodeNames": []}, "Pod.metadata.uid is 7" + EMPTY),
    (
        read_filter,
        {"Pod": {"metadata": {"uid": "x" * 300}}, "NodeNames": []},
        "Pod.metadata.uid has 300 characters; the limit is 253",
    ),
    (
        read_filter,
        {"Pod": {"metadata": {"uid": "\x1b[2J"}}, "NodeNames": []},
        "Pod.metadata.uid has characters that cannot be printed; it must be a name",
    ),
    (read_filter, {"Pod": {}, "NodeNames": []}, "Pod.metadata is missing; it must be an object"),
    (read_filter, {"Pod": POD}, "NodeNames and Nodes are both missing; one of them must list the candidate nodes"),
    (read_filter, {"Pod": POD, "NodeNames": {}}, "NodeNames is an object; it must be a list of node names"),
    (read_filter, {"Pod": POD, "NodeNames": [1]}, "NodeNames has 1; each must be the name of a node"),
    (read_filter, HUGE, "50001 nodes are listed; the limit is 50000"),
    (read_filter, {"Pod": POD, "Nodes": []}, "Nodes is a list; it must be a NodeList"),
    (read_filter, {"Pod": POD, "Nodes": {"items": {}}}, "Nodes.items is an object; it must be a list of Nodes"),
    (read_filter, {"Pod": POD, "Nodes": {"items": ["n"]}}, "Nodes.items has the text 'n'; each item must be a Node"),
    (read_filter, {"Pod": POD, "Nodes": {"items": [{}]}}, "Nodes.items.metadata is missing; it must be an object"),
    (read_bind, {"PodName": "p", "PodNamespace": "n", "PodUID": "u"}, "Node is missing" + EMPTY),
    (read_bind, {"PodName": ""}, "PodName is empty text" + EMPTY),
    (read_preempt, {"Pod": POD}, "NodeNameToMetaVictims and NodeNameToVictims are both missing; send one of them"),
    (
        read_preempt,
        {"Pod": POD, "NodeNameToVictims": []},
        "NodeNameToVictims is a list; it must map node names to victims",
    ),
    (
        read_preempt,
        {"Pod": POD, "NodeNameToVictims": {"a": 1}},
        "NodeNameToVictims.a is 1; it must be an object with Pods",
    ),
    (
        read_preempt,
        {"Pod": POD, "NodeNameToMetaVictims": {"a": {"NumPDBViolations": "x"}}},
        "NodeNameToMetaVictims.a.NumPDBViolations is the text 'x'; it must be a whole number",
    ),
    (decoded, b"[]", "the request body is a list; it must be a JSON object"),
    (decoded, b'{"a": NaN}', "the request body is not JSON (NaN is not a JSON number)" + ARGUMENTS),
    (
        decoded,
        b"{",
        "the request body is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"
        + ARGUMENTS,
    ),
    (
        decoded,
        b"\xff",
        "the request body is not JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)"
        + ARGUMENTS,
    ),
    (decoded, b"[" * 100_000, "the request body is not JSON (it nests too deeply)" + ARGUMENTS),
]


@pytest.mark.parametrize(("read", "body", "text"), FAULTS, ids=[text[:40] for _, _, text in FAULTS])
def test_a_wrong_question_is_refused_by_one_sentence(read: Callable[[Any], object], body: Any, text: str) -> None:
    with pytest.raises(ExtenderError) as refused:
        read(body)
    assert (str(refused.value), refused.value.code) == (text, 400)


def test_a_number_of_many_digits_costs_nothing() -> None:
    with pytest.raises(ExtenderError, match="not JSON"):
        decoded(json.dumps({"a": 1}).replace("1", "9" * 100_000).encode())


@pytest.mark.parametrize("body", [b'{"x":[' + b"[]," * 1_000_001 + b"0]}", b'{"x":[' + b"0," * 4_000_001 + b"0]}"])
def test_a_large_body_of_small_values_is_not_decoded(body: bytes) -> None:
    with pytest.raises(ExtenderError) as refused:
        decoded(body)
    assert refused.value.code == 413
    assert str(refused.value) == (
        "the request body has more than 1000000 objects and lists or 4000000 values; set nodeCacheCapable: true in the "
        "scheduler's configuration"
    )
