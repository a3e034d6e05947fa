from __future__ import annotations

from typing import Any

from driver.slices.store import SliceStore
from node.clocks import SystemClocks
from tests.making.clock import ManualClock

Json = dict[str, Any]


def body(version: int, name: str = "s", uid: str = "u", pool: str = "p", **metadata: Any) -> Json:
    entry = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(version), **metadata},
        "spec": {"pool": entry, "devices": []},
    }


def store(clock: ManualClock | None = None, pool: str = "") -> SliceStore:
    return SliceStore(60.0, SystemClocks(monotonic=clock or ManualClock()), pool)


def versions(made: SliceStore) -> list[str]:
    return [each.resource_version for each in made.in_pool("p")]


def test_old_news_does_not_replace_what_we_wrote() -> None:
    made = store()
    made.wrote(body(20))
    assert made.applied(body(9)) == set()
    assert made.replaced([body(9)], "12") == set()
    assert versions(made) == ["20"]
    assert made.applied(body(100)) == {"p"}
    assert versions(made) == ["100"]


def test_our_own_write_is_no_news() -> None:
    made = store()
    made.wrote(body(20))
    assert made.applied(body(20)) == set()


def test_a_list_of_before_our_creation_does_not_remove_it() -> None:
    made = store()
    made.wrote(body(20))
    assert made.replaced([], "19") == set()
    assert versions(made) == ["20"]
    assert made.replaced([], "21") == {"p"}
    assert versions(made) == []


def test_a_bookmark_settles_what_was_not_confirmed() -> None:
    made = store()
    made.wrote(body(20))
    made.applied(body(15, name="t", uid="v"))
    assert made.bookmark("19") == set()
    assert made.bookmark("20") == {"p"}
    assert versions(made) == ["15"]


def test_a_creation_that_nobody_confirms_becomes_doubtful() -> None:
    clock = ManualClock()
    made = store(clock)
    made.wrote(body(20))
    clock.now = 59.0
    assert not made.doubtful("p")
    clock.now = 60.0
    assert made.doubtful("p")
    assert not made.doubtful("q")
    made.applied(body(20))
    assert not made.doubtful("p")


def test_a_deletion_of_ours_is_believed_against_old_news() -> None:
    clock = ManualClock()
    made = store(clock)
    made.applied(body(20))
    (stored,) = made.in_pool("p")
    made.removed(stored)
    assert made.applied(body(19)) == set()
    assert made.replaced([body(20)], "20") == set()
    assert versions(made) == []
    assert made.deleted(body(21)) == set()


def test_a_finalizer_holds_what_we_deleted() -> None:
    made = store()
    made.applied(body(20, finalizers=["example.com/hold"]))
    (stored,) = made.in_pool("p")
    made.removed(stored)
    (held,) = made.in_pool("p")
    assert held.leaving


def test_the_watch_may_tell_of_a_held_deletion_before_its_answer_comes() -> None:
    made = store()
    made.applied(body(20, finalizers=["example.com/hold"]))
    (stored,) = made.in_pool("p")
    made.applied(body(21, finalizers=["example.com/hold"], deletionTimestamp="2026-01-01T00:00:00Z"))
    made.removed(stored)
    assert versions(made) == ["21"]
    assert made.in_pool("p")[0].leaving


def test_another_object_of_that_name_is_another_object() -> None:
    made = store()
    made.applied(body(20))
    made.deleted(body(21, uid="other"))
    assert versions(made) == ["20"]
    assert made.applied(body(5, uid="third")) == {"p"}
    assert versions(made) == ["5"]


def test_the_answer_to_a_write_may_come_after_the_end_of_the_slice() -> None:
    made = store()
    assert made.deleted(body(21)) == {"p"}
    made.wrote(body(20))
    assert versions(made) == []
    made.applied(body(30, name="t", uid="v"))
    assert made.deleted(body(32, name="t", uid="v")) == {"p"}
    made.wrote(body(31, name="t", uid="v"))
    assert versions(made) == []
    assert made.deleted(body(33, name="t", uid="v")) == set()


def test_a_list_of_our_own_asking_leaves_what_the_watch_told_meanwhile() -> None:
    made = store()
    made.applied(body(20))
    made.applied(body(10, name="t", uid="v"))
    before = made.versions()
    made.applied(body(30, name="new", uid="w"))
    made.applied(body(31))
    assert made.refreshed([], before) == {"p"}
    assert versions(made) == ["30", "31"]


def test_a_slice_that_moves_concerns_both_pools() -> None:
    made = store()
    made.applied(body(20))
    assert made.applied(body(21, pool="q")) == {"p", "q"}


def test_other_pools_are_not_kept_when_there_is_only_one() -> None:
    made = store(pool="q")
    assert made.replaced([body(20), body(21, name="t", uid="v", pool="q")], "21") == {"q"}
    assert made.pools() == {"q"}
