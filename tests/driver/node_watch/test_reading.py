"""Which claim is read next: everybody has a turn, nobody has many, and reads in vain are few."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.node_watch.pods import MOST_CLAIMS, NodePod
from driver.node_watch.reading import HEAD_START, Key, ReadingOrder, ReadPace, ReadResult, ReadTurn
from kube.backoff import BackoffPolicy
from node.clocks import SystemClocks

PACE = ReadPace()


def pod(name: str, *claims: str, namespace: str = "team") -> NodePod:
    return NodePod(f"uid-{name}", namespace, name, claims=claims)


def attacker(name: str, namespace: str = "team") -> NodePod:
    return pod(name, *(f"{name}-{n}" for n in range(MOST_CLAIMS)), namespace=namespace)


def order_of(*pods: NodePod, pace: ReadPace = PACE) -> ReadingOrder:
    order = ReadingOrder(pace, SystemClocks(random=lambda: 0.5))
    order.apply(pods, 0.0)
    return order


def taken(order: ReadingOrder, now: float) -> ReadTurn:
    turn = order.take(now)
    assert turn is not None
    return turn


class _Reader:
    """Reads one claim after the other at once: what it knows is there, everything else does not exist."""

    def __init__(self, order: ReadingOrder, *there: Key) -> None:
        self.order = order
        self.there = frozenset(there)
        self.now = 0.0
        self.read: list[tuple[float, ReadTurn]] = []

    def until(self, end: float) -> None:
        while (at := self.order.next_at(self.now)) is not None and at <= end:
            self.now = max(self.now, at)
            turn = self.order.take(self.now)
            if turn is not None:
                self.read.append((self.now, turn))
                answer = ReadResult.SETTLED if turn.key in self.there else ReadResult.ABSENT
                self.order.done(turn, self.now, answer, heard=True)
        self.now = end

    def at(self, name: str) -> list[float]:
        return [at for at, turn in self.read if turn.key[1] == name]


def test_five_pods_with_a_hundred_missing_claims_each_cost_a_read_in_six_seconds() -> None:
    reader = _Reader(order_of(*(attacker(f"a{n}") for n in range(5))))
    reader.until(60.0)
    assert len(reader.read) <= 5 * 9
    reader.read.clear()
    reader.until(660.0)
    assert len(reader.read) / 600.0 < 0.25


def test_however_many_pods_name_missing_claims_the_node_reads_ten_in_a_second() -> None:
    reader = _Reader(order_of(*(attacker(f"a{n}", f"ns-{n % 7}") for n in range(400))))
    reader.until(30.0)
    assert len(reader.read) <= PACE.burst + 30.0 * PACE.per_second + 1
    most = Counter(int(at) for at, _ in reader.read if at >= 1)
    assert max(most.values()) <= PACE.per_second + 1


@pytest.mark.parametrize("namespace", ["team", "other"])
def test_a_new_pods_claim_is_read_at_once_whatever_others_name(namespace: str) -> None:
    attack = [attacker(f"a{n}") for n in range(5)]
    order = order_of(*attack)
    honest = (namespace, "gpu")
    reader = _Reader(order, honest)
    reader.until(20.0)
    order.apply([*attack, pod("honest", "gpu", namespace=namespace)], reader.now)
    reader.until(40.0)
    assert len(reader.at("gpu")) == 1
    assert reader.at("gpu")[0] - 20.0 <= 1 / PACE.per_second


def test_another_namespace_has_every_second_turn_among_a_hundred_new_pods() -> None:
    attack = [attacker(f"a{n}") for n in range(100)]
    names = [f"gpu-{n}" for n in range(8)]
    reader = _Reader(order_of(*attack, pod("honest", *names, namespace="other")), *(("other", each) for each in names))
    reader.until(0.0)
    turns = [turn.pod == "uid-honest" for _, turn in reader.read[:16]]
    assert sum(turns) == 8


def test_allocated_claims_cost_no_tokens_so_a_full_node_starts_as_fast_as_the_server_answers() -> None:
    pods = [pod(f"p{n}", *(f"c{n}-{m}" for m in range(8))) for n in range(110)]
    reader = _Reader(order_of(*pods), *((each.namespace, name) for each in pods for name in each.claims))
    reader.until(0.0)
    assert len(reader.read) == 880
    assert reader.order.next_at(0.0) is None
    assert reader.order.unanswered == ()


def test_a_claim_that_is_not_there_is_asked_for_after_five_minutes_at_most_one_that_is_later_after_one() -> None:
    for answer, most in ((ReadResult.ABSENT, 300.0), (ReadResult.LATER, 60.0)):
        order = order_of(pod("p", "c"), pace=ReadPace(pod=BackoffPolicy(first=0.0, most=0.0)))
        now, waits = 0.0, []
        for _ in range(20):
            order.done(taken(order, now), now, answer, heard=True)
            due = order.next_at(now)
            assert due is not None
            waits.append(due - now)
            now = due
        assert waits[0] == 0.375
        assert waits == sorted(waits)
        assert waits[-1] == 0.75 * most


def test_the_server_says_how_long_to_wait() -> None:
    order = order_of(pod("p", "c"))
    order.done(taken(order, 0.0), 0.0, ReadResult.LATER, heard=False, retry_after=7.0)
    due = order.next_at(0.0)
    assert due is not None
    assert due >= 7.0
    assert order.unanswered == (("team", "c"),)


def test_a_pod_has_one_claim_read_at_a_time() -> None:
    order = order_of(pod("p", "a", "b"), pod("q", "c"))
    first, second = taken(order, 0.0), taken(order, 0.0)
    assert {first.pod, second.pod} == {"uid-p", "uid-q"}
    assert order.take(0.0) is None
    order.done(first, 0.0, ReadResult.SETTLED, heard=True)
    assert taken(order, 0.0).key == ("team", "b")


def test_a_claim_that_pods_share_is_read_once_and_again_when_another_pod_names_it() -> None:
    pods = [pod("p", "c"), pod("q", "c")]
    reader = _Reader(order_of(*pods), ("team", "c"))
    reader.until(60.0)
    assert len(reader.read) == 1
    reader.order.apply([*pods, pod("r", "c")], 60.0)
    reader.until(120.0)
    assert len(reader.read) == 2
    assert reader.order.users(("team", "c")) == {"uid-p", "uid-q", "uid-r"}


def test_a_claim_that_another_pod_names_while_it_is_read_is_due_again() -> None:
    order = order_of(pod("p", "c"))
    turn = taken(order, 0.0)
    order.apply([pod("p", "c"), pod("q", "c")], 0.0)
    assert order.take(0.0) is None
    order.done(turn, 0.0, ReadResult.SETTLED, heard=True)
    assert taken(order, 0.0).key == ("team", "c")


def test_pods_that_are_gone_leave_nothing_behind() -> None:
    order = order_of(pod("p", "a", "c"), pod("q", "c"))
    turn, _ = taken(order, 0.0), taken(order, 0.0)
    assert order.apply([pod("q", "c")], 0.0) == (("team", "a"),)
    assert order.apply([], 0.0) == (("team", "c"),)
    order.done(turn, 0.0, ReadResult.ABSENT, heard=True)
    assert order.next_at(0.0) is None
    assert order.take(0.0) is None
    assert order.unanswered == ()


def test_a_pod_whose_names_change_keeps_those_that_it_still_names() -> None:
    reader = _Reader(order_of(pod("p", "a", "b")), *(("team", name) for name in "abc"))
    reader.until(0.0)
    assert reader.order.apply([pod("p", "b", "c")], 0.0) == (("team", "a"),)
    assert set(reader.order.unanswered) <= {("team", "b"), ("team", "c")}
    reader.until(0.0)
    assert reader.order.unanswered == ()


def test_a_claim_outlives_the_pod_that_named_it_first() -> None:
    order = order_of(pod("p", "c"), pod("q", "d", "c"))
    order.done(taken(order, 0.0), 0.0, ReadResult.SETTLED, heard=True)
    assert order.apply([pod("q", "d", "c")], 0.0) == ()
    assert order.users(("team", "c")) == {"uid-q"}


def test_an_answer_that_comes_after_all_its_pods_have_gone_does_not_count_for_others() -> None:
    order = order_of(pod("p", "c"))
    late = taken(order, 0.0)
    order.apply([], 0.0)
    order.apply([pod("q", "c")], 0.0)
    anew = taken(order, 0.0)
    assert order.counts(anew)
    assert not order.counts(late)
    order.done(late, 0.0, ReadResult.SETTLED, heard=True)
    assert order.unanswered == (("team", "c"),)
    assert order.take(0.0) is None
    assert order.counts(anew)
    order.done(anew, 0.0, ReadResult.LATER, heard=True)
    assert order.next_at(0.0) is not None


def test_a_pod_that_comes_costs_as_little_whatever_it_names() -> None:
    flood = [attacker(f"a{n}") for n in range(500)]
    order = ReadingOrder(PACE, SystemClocks(random=lambda: 0.5))
    began = time.thread_time()
    order.apply(flood, 0.0)
    order.apply(flood[1:], 0.0)
    order.take(0.0)
    assert time.thread_time() - began < 0.05


def test_pods_that_share_their_claims_come_and_go_together_at_the_cost_of_each() -> None:
    shared = [f"shared-{n}" for n in range(8)]
    pods = [pod(f"a{n}", *shared) for n in range(1000)]
    reader = _Reader(order_of(*pods))
    reader.until(1.0)
    assert {turn.key[1] for _, turn in reader.read} == set(shared)
    began = time.thread_time()
    reader.order.apply(pods[:500], 2.0)
    reader.order.apply(pods, 3.0)
    assert set(reader.order.apply([], 4.0)) == {("team", name) for name in shared}
    assert time.thread_time() - began < 0.5


def test_pods_that_come_without_end_do_not_keep_an_older_one_waiting() -> None:
    old = pod("old", "gpu")
    order = order_of(old)
    order.done(taken(order, 0.0), 0.0, ReadResult.LATER, heard=False)
    now, turns = 5.0, 0
    flood: list[NodePod] = []
    while turns < 2 * HEAD_START:
        flood = [*flood[-20:], pod(f"new-{now}", f"missing-{now}")]
        order.apply([old, *flood], now)
        turn = order.take(now)
        if turn is not None:
            turns += 1
            if turn.pod == "uid-old":
                return
            order.done(turn, now, ReadResult.ABSENT, heard=True)
        now += 0.1
    pytest.fail("the older pod had no turn")


def test_a_pod_may_have_to_wait_for_its_first_turn_and_no_longer_than_the_newest_wait_says() -> None:
    order = order_of(pod("early", "a"))
    order.set_lead(1.0, 0.0)
    assert taken(order, 0.0).key == ("team", "a"), "it came before"
    order.apply([pod("early", "a"), pod("late", "b")], 0.0)
    assert order.take(0.9) is None
    assert order.next_at(0.9) == 1.0
    order.set_lead(0.0, 0.9)
    assert taken(order, 0.9).key == ("team", "b")
    order.set_lead(1.0, 0.9)
    order.apply([pod("third", "c")], 2.0)
    order.set_lead(5.0, 2.0)
    assert order.next_at(2.0) == 3.0, "a longer wait is for those that come"


def test_a_pod_that_names_a_claim_of_another_pod_does_not_wait_for_its_first_turn() -> None:
    order = order_of(pod("early", "a"))
    assert taken(order, 0.0).key == ("team", "a")
    order.set_lead(1.0, 0.0)
    order.apply([pod("early", "a"), pod("late", "a", "b"), pod("other", "c")], 0.5)
    assert order.next_at(0.5) == 0.5
    assert taken(order, 0.5).pod == "uid-late"


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "go", "take", "answer", "wait"]), st.integers(0, 7), st.integers(0, 7)),
    max_size=120,
)
ANSWERS = (ReadResult.SETTLED, ReadResult.ABSENT, ReadResult.LATER)


class _World:
    """Pods that come and go, and readers that are slow, in any order; every rule is checked at every step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pods: dict[str, NodePod] = {}
        self.order = ReadingOrder(PACE, SystemClocks(random=lambda: 0.5))
        self.reading: list[ReadTurn] = []
        self.in_vain = 0

    def step(self, step: Step) -> None:
        what, one, two = step
        if what == "come":
            each = pod(f"p{one}", *sorted({f"c{one % 3}", f"c{two}", f"d{one}"}), namespace=f"ns-{one % 2}")
            self.pods[each.uid] = each
            self.apply()
        elif what == "go":
            self.pods.pop(f"uid-p{one}", None)
            self.apply()
        elif what == "take":
            self.take()
        elif what == "answer" and self.reading:
            self.answer(self.reading.pop(one % len(self.reading)), ANSWERS[two % 3])
        else:
            self.now += one / 4

    def apply(self) -> None:
        named = self.named()
        for key in self.order.apply(self.pods.values(), self.now):
            assert key not in named
        assert set(self.order.unanswered) <= named

    def take(self) -> None:
        due = self.order.next_at(self.now)
        turn = self.order.take(self.now)
        if turn is None:
            following = self.order.next_at(self.now)
            # Whoever sleeps until then does not wake in vain for ever.
            assert following is None or following > self.now
            return
        assert due is not None
        assert due <= self.now
        each = self.pods[turn.pod]
        assert turn.key in {(each.namespace, name) for name in each.claims}
        self.reading.append(turn)

    def answer(self, turn: ReadTurn, answer: ReadResult) -> None:
        self.in_vain += answer is not ReadResult.SETTLED
        assert self.in_vain <= PACE.burst + self.now * PACE.per_second + 1
        self.order.done(turn, self.now, answer, heard=True)

    def named(self) -> set[Key]:
        return {(each.namespace, name) for each in self.pods.values() for name in each.claims}

    def finish(self) -> None:
        """Everything that pods name is read in the end, once where the claim is there."""
        while self.reading:
            self.answer(self.reading.pop(), ReadResult.SETTLED)
        while (due := self.order.next_at(self.now)) is not None:
            self.now = max(self.now, due)
            self.take()
            if self.reading:
                self.answer(self.reading.pop(), ReadResult.SETTLED)
        assert self.order.unanswered == ()
        assert self.now < math.inf


@settings(max_examples=75, deadline=None)
@given(STEPS)
def test_whatever_pods_do_every_claim_is_read_and_reads_in_vain_are_limited(steps: Iterable[Step]) -> None:
    world = _World()
    for step in steps:
        world.step(step)
    world.finish()
