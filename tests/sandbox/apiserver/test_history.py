"""The order of changes, and how much of it is remembered."""

from __future__ import annotations

import pytest

from sandbox.apiserver.kinds import Catalogue
from sandbox.apiserver.objects import History, StoredChange
from sandbox.apiserver.refusals import StatusError

NODES = Catalogue().by_plural("nodes")
PODS = Catalogue().by_plural("pods")


def filled(count: int, most: int) -> History:
    history = History(most)
    for number in range(count):
        kind = PODS if number % 2 else NODES
        history.append(StoredChange(history.next(), "ADDED", kind, {}, None))
    return history


def test_events_of_one_kind_follow_a_version() -> None:
    history = filled(6, 100)
    assert [event.version for event in history.after(991, NODES)] == [993, 995]
    assert [event.version for event in history.after(990, PODS)] == [992, 994, 996]
    assert history.after(history.version, NODES) == []
    assert history.after(history.version + 5, NODES) == []


def test_long_history_forgets_its_beginning() -> None:
    history = filled(21, 10)
    kept = history.after(1001, NODES) + history.after(1001, PODS)
    assert len(kept) == 10
    with pytest.raises(StatusError, match=r"too old resource version: 1000 \(1001\)") as caught:
        history.after(1000, NODES)
    assert caught.value.code == 410


def test_forgetting_leaves_what_comes() -> None:
    history = filled(3, 10)
    history.forget()
    assert history.after(history.version, NODES) == []
    with pytest.raises(StatusError):
        history.check(history.version - 1)
    history.append(StoredChange(history.next(), "ADDED", NODES, {}, None))
    assert len(history.after(993, NODES)) == 1
