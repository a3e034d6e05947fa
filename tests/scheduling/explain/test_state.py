"""States: looking up, and two of them together."""

from __future__ import annotations

from scheduling.explain.state import Kind, MissingKind, State, merge
from tests.scheduling.explain.objects import claim, device_class, node, pod, resource_slice, template


def test_objects_are_found_by_namespace_and_name() -> None:
    state = State(claims=(claim("a", "x"), claim("a", "y")), pods=(pod("p"),), templates=(template("t"),))
    found = state.find(Kind.CLAIM, "a", "y")
    assert found is state.claims[1]
    assert state.find(Kind.CLAIM, "a", "z") is None
    assert state.find(Kind.POD, "p", "team") is state.pods[0]
    assert state.find(Kind.TEMPLATE, "t", "team") is state.templates[0]


def test_objects_without_a_namespace_are_in_default() -> None:
    body = claim("a")
    del body["metadata"]["namespace"]  # type: ignore[union-attr, arg-type]
    state = State(claims=(body,))
    assert state.find(Kind.CLAIM, "a", "default") is body
    assert state.find(Kind.CLAIM, "a", "") is body


def test_kinds_without_namespaces_are_found_by_name_alone() -> None:
    state = State(classes=(device_class("gpu"),), nodes=(node("n"),), slices=(resource_slice("s", "n"),))
    assert state.find(Kind.CLASS, "gpu") is state.classes[0]
    assert state.find(Kind.NODE, "n") is state.nodes[0]
    assert state.find(Kind.SLICE, "s") is state.slices[0]
    assert state.find(Kind.NODE, "n", "anything") is state.nodes[0]


def test_of_two_states_the_second_one_wins_and_keeps_the_place() -> None:
    live = State("cluster", "v1.37.0", claims=(claim("a"), claim("b"), claim("c")))
    files = State("a.yaml", claims=(claim("b", count=4), claim("d")))
    both = merge(live, files)
    assert [body["metadata"]["name"] for body in both.claims] == ["a", "b", "c", "d"]  # type: ignore[call-overload, index]
    assert both.find(Kind.CLAIM, "b", "team") is files.claims[0]
    assert (both.origin, both.server_version) == ("cluster with a.yaml", "v1.37.0")


def test_a_kind_that_files_bring_is_no_longer_missing() -> None:
    lacks = (
        MissingKind(Kind.NODE, "nodes are forbidden"),
        MissingKind(Kind.POD, "pods are forbidden", "ask for the right"),
    )
    both = merge(State(missing=lacks), State(nodes=(node("n"),)))
    assert both.lacks(Kind.NODE) is None
    assert str(both.lacks(Kind.POD)) == "pods are forbidden; ask for the right"


def test_whole_kinds_and_truncations_add_up() -> None:
    both = merge(
        State(whole=frozenset({Kind.NODE}), truncated=("x",)), State(whole=frozenset({Kind.POD}), truncated=("x", "y"))
    )
    assert both.whole == {Kind.NODE, Kind.POD}
    assert both.truncated == ("x", "y")


def test_replacing_objects_forgets_what_was_looked_up() -> None:
    state = State(nodes=(node("old"),))
    assert state.find(Kind.NODE, "old")
    other = state.with_objects(Kind.NODE, (node("new"),))
    assert other.find(Kind.NODE, "old") is None
    assert other.find(Kind.NODE, "new")
