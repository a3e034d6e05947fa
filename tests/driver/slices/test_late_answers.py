"""Answers to writes of ours that come later than the watch's news of what became of the slice."""

from __future__ import annotations

from driver.slices.store import SliceStore
from kube.bodies import JsonObject
from node.clocks import SystemClocks


def body(version: int) -> JsonObject:
    metadata: JsonObject = {"name": "00000-a", "uid": "uid-1", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"pool": {"name": "pool", "generation": 1}}}


def test_a_slice_that_was_created_and_deleted_before_our_answer_came_is_not_believed_to_be_there() -> None:
    store = SliceStore(60.0, SystemClocks(monotonic=lambda: 0.0))
    store.applied(body(5))
    assert store.deleted(body(6)) == {"pool"}
    store.wrote(body(5))
    assert store.in_pool("pool") == ()


def test_an_end_is_remembered_no_longer_than_answers_can_be_late() -> None:
    now = [0.0]
    store = SliceStore(60.0, SystemClocks(monotonic=lambda: now[0]))
    store.applied(body(5))
    store.deleted(body(6))
    now[0] = 61.0
    store.replaced([], "7")
    store.wrote(body(8))
    assert len(store.in_pool("pool")) == 1
