"""When it is sure that the kubelet has other devices than we show, and what is told of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.clocks import SystemClocks
from node.events import EventBus
from plugin.kubelet import AllocatableAnswer, KubeletView, QuestionPace
from plugin.listing import DeviceListing
from plugin.slot_ownership import Loss, SlotOwnership, difference
from tests.making.plugin_door import folders, offered

GPU = "nvidia.com/gpu"
PACE = QuestionPace(soon=1, again=1, sure=2, every=60, alive=1)
IDS = st.frozensets(st.sampled_from("abcdef"))


class Judged:
    """A possession and the kubelet's answers to it, at times of its own."""

    def __init__(self, root: Path) -> None:
        self.now = 100.0
        self.listing = DeviceListing(GPU, EventBus())
        self.listing.update((offered("g0"), offered("g1"), offered("g2", healthy=False, reason="broken")))
        self.listing.streams = 1
        self.view = KubeletView(
            root / "kubelet.sock", EventBus(), clocks=SystemClocks(monotonic=lambda: self.now), pace=PACE
        )
        self.possession = SlotOwnership(self.listing, folders(root), self.view, pace=PACE, woken=asyncio.Event())
        self.possession.registered(self.now)
        self._number = 0

    def answer(self, *ids: str, after: float = 1.0, asked: float = 0.0) -> Loss | None:
        """The kubelet has these ids, ``after`` seconds; it was asked ``asked`` seconds before."""
        self.now += after
        self._number += 1
        self.view.answer = AllocatableAnswer(
            self._number, self.now - asked, {GPU: frozenset(ids), "a.b/c": frozenset("x")}
        )
        return self.possession.look(self.now)


@pytest.fixture
def judged(short_dir: Path) -> Judged:
    return Judged(short_dir)


def test_healthy_devices_on_both_sides_are_agreement(judged: Judged) -> None:
    assert all(judged.answer("g1", "g0") is None for _ in range(5))
    assert judged.possession.agrees


def test_a_difference_counts_once_it_has_stayed_for_two_seconds(judged: Judged) -> None:
    assert judged.answer("s1") is None
    assert judged.answer("s1") is None
    loss = judged.answer("s1")
    assert loss is not None
    assert loss.words == "missing: g0, g1; not ours: s1"
    assert loss.theirs == loss.taken == {"s1"}


def test_a_resource_that_the_kubelet_does_not_know_is_lost_to_nobody(judged: Judged) -> None:
    losses = [judged.answer() for _ in range(3)]
    assert losses[-1] == Loss("missing: g0, g1", frozenset(), frozenset())


def test_agreement_in_between_begins_the_doubt_anew(judged: Judged) -> None:
    answers = [("s1",), ("s1",), ("g0", "g1"), ("s1",), ("s1",)]
    assert [judged.answer(*ids) for ids in answers] == [None] * 5


def test_a_list_on_its_way_begins_the_doubt_anew(judged: Judged) -> None:
    judged.answer("g0", "g1")
    for _ in range(4):
        judged.listing.update((offered(f"n{judged.now}"),))
        assert judged.answer("g0", "g1", after=1.5) is None


def test_an_answer_from_before_the_registration_says_nothing(judged: Judged) -> None:
    assert [judged.answer("s1", asked=1000) for _ in range(4)] == [None] * 4


def test_one_answer_counts_once_however_often_it_is_looked_at(judged: Judged) -> None:
    judged.answer("s1")
    judged.now += 10
    assert judged.possession.look(judged.now) is None


def test_nothing_is_concluded_without_an_answer(judged: Judged) -> None:
    judged.view.answer = None
    judged.now += 100
    assert judged.possession.look(judged.now) is None
    assert not judged.possession.agrees


def test_many_ids_are_not_all_named() -> None:
    ours = frozenset(f"g{index}" for index in range(9))
    assert difference(ours, frozenset()) == "missing: g0, g1, g2 and 6 more"


@given(IDS, IDS)
def test_a_difference_has_words_exactly_if_there_is_one(ours: frozenset[str], theirs: frozenset[str]) -> None:
    assert bool(difference(ours, theirs)) is (ours != theirs)
