"""Events while the API server is away, busy or losing answers: in order, counted exactly once, and said once."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.backoff import BackoffPolicy
from kube.bodies import Json, JsonObject, object_at, text_at
from kube.errors import Forbidden, NotFound, Unreachable, refusal
from kube.events import EventLimits, Subject
from tests.kube.conftest import client_of
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused
from tests.making.event_posters import EVENTS, CountedPoster, RecordingClient, RunningPoster, poster
from tests.waiting import until


def test_an_outage_is_survived_in_order_and_said_once(
    recorder: RecordingClient, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.faults = [Unreachable("POST", EVENTS, "connection refused", sent=False)] * 5
    events = poster()
    for reason in ("A", "B", "C"):
        events.offer("Warning", reason, "text", 0.0)
    with RunningPoster(events, recorder):
        until(lambda: events.posted == 3)
    assert [body["reason"] for body in recorder.created] == ["A", "B", "C"]
    assert (events.failed, events.dropped, events.failing) == (5, 0, "")
    assert len([entry for entry in caplog.records if "cannot be posted" in entry.message]) == 1


def test_during_an_outage_the_reason_is_shown_and_nothing_blocks() -> None:
    gate = threading.Event()

    class Away(RecordingClient):
        def create(self, path: str, body: JsonObject) -> JsonObject:
            gate.wait(60)
            raise Forbidden("POST", path, 403, "Forbidden", 'cannot create resource "events"')

    events = poster()
    with RunningPoster(events, Away()):
        events.offer("Warning", "A", "text", 0.0)
        for number in range(200):
            events.offer("Normal", "Other", f"{number}", 0.0)
        gate.set()
        until(lambda: events.failing)
        assert events.failing == f'POST {EVENTS}: 403 Forbidden: cannot create resource "events"'
    assert events.posted == 0
    assert events.dropped >= 100


def test_a_lost_answer_makes_no_second_event(server: StubApiServer) -> None:
    stored: dict[str, Asked] = {}

    def respond(asked: Asked) -> CannedAnswer:
        name = text_at(asked.body, "metadata", "name")
        if asked.method == "POST" and name in stored:
            return refused(409, "AlreadyExists", f"{name} is there")
        stored[name] = asked
        return CannedAnswer(hang_up=True) if len(server.asked) == 1 else CannedAnswer()

    server.respond = respond
    with RunningPoster(poster(), client_of(server)) as events:
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.posted == 1)
    first, second, patch = server.asked
    assert (first.method, second.method, patch.method) == ("POST", "POST", "PATCH")
    assert object_at(first.body, "metadata") == object_at(second.body, "metadata")
    assert patch.body["count"] == 1


def test_one_that_fails_while_others_fill_its_place_is_dropped() -> None:
    on_its_way, gate = threading.Event(), threading.Event()

    class Away(RecordingClient):
        def create(self, path: str, body: JsonObject) -> JsonObject:
            if body["reason"] == "First":
                on_its_way.set()
                gate.wait(60)
                raise Unreachable("POST", path, "away", sent=False)
            return super().create(path, body)

    away, events = Away(), poster(EventLimits(waiting=2))
    with RunningPoster(events, away):
        events.offer("Warning", "First", "text", 0.0)
        assert on_its_way.wait(60)
        for reason in "AB":
            events.offer("Warning", reason, "text", 0.0)
        gate.set()
        until(lambda: events.posted == 2)
    assert [body["reason"] for body in away.created] == ["A", "B"]
    assert (events.dropped, events.failed) == (1, 1)


def test_waits_are_short_again_once_it_has_worked(recorder: RecordingClient) -> None:
    policy = BackoffPolicy(first=0.001, most=600.0)
    many = EventLimits(burst=100)
    events = CountedPoster(
        Subject.node("a"), component="c", instance="a", random=lambda: 0.5, policy=policy, limits=many
    )
    with RunningPoster(events, recorder):
        for number in range(20):
            recorder.faults = [Unreachable("POST", EVENTS, "away", sent=False)]
            events.offer("Warning", f"{number}", "text", 0.0)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
    assert events.failed == 20


def test_the_wait_that_a_busy_server_asks_for_is_kept(recorder: RecordingClient) -> None:
    recorder.faults = [refusal("POST", EVENTS, 429, "TooManyRequests", "busy", retry_after=300.0)]
    policy = BackoffPolicy(first=0.001, most=0.001, longest=300.0)
    events = CountedPoster(Subject.node("a"), component="c", instance="a", random=lambda: 0.5, policy=policy)
    with RunningPoster(events, recorder):
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.failed == 1)
        assert not threading.Event().wait(0.1), "time enough for a hundred attempts"
        assert recorder.created == []


def test_a_patch_that_fails_is_repeated_with_the_same_count(recorder: RecordingClient) -> None:
    events = poster()
    with RunningPoster(events, recorder):
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.posted == 1)
        recorder.faults = [Unreachable("PATCH", EVENTS, "lost", sent=True), NotFound("PATCH", EVENTS, 404, "", "")]
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.posted == 2)
    assert [body["count"] for body in recorder.created] == [1, 1]


class Flaky:
    """An API server whose every request may be lost on its way there, or its answer on the way back."""

    def __init__(self, fates: list[str]) -> None:
        self.counts: dict[str, int] = {}
        self._fates = list(fates)

    def create(self, path: str, body: JsonObject) -> JsonObject:
        name, fate = text_at(body, "metadata", "name"), self._fate()
        if fate == "request lost":
            raise Unreachable("POST", path, fate, sent=True)
        if name in self.counts:
            raise refusal("POST", path, 409, "AlreadyExists", name)
        self.counts[name] = int(str(body["count"]))
        if fate == "answer lost":
            raise Unreachable("POST", path, fate, sent=True)
        return body

    def patch(self, path: str, body: Json) -> JsonObject:
        name, fate = path.removeprefix(f"{EVENTS}/"), self._fate()
        if fate == "request lost":
            raise Unreachable("PATCH", path, fate, sent=True)
        if name not in self.counts:
            raise refusal("PATCH", path, 404, "NotFound", name)
        assert isinstance(body, dict)
        self.counts[name] = int(str(body["count"]))
        if fate == "answer lost":
            raise Unreachable("PATCH", path, fate, sent=True)
        return body

    def _fate(self) -> str:
        return self._fates.pop() if self._fates else "arrives"


@given(
    st.lists(st.sampled_from("ABC"), min_size=1, max_size=12),
    st.lists(st.sampled_from(["arrives", "request lost", "answer lost"]), max_size=12),
    st.integers(0, 12),
)
def test_whatever_is_lost_every_event_is_counted_exactly_once(offers: list[str], fates: list[str], early: int) -> None:
    events, server = poster(), Flaky(fates)
    for reason in offers[:early]:
        events.offer("Warning", reason, "text", 0.0)
    with RunningPoster(events, server):
        for reason in offers[early:]:
            events.offer("Warning", reason, "text", 0.0)
        until(lambda: events.posted == len(offers))
    assert sum(server.counts.values()) == len(offers)
    assert len(server.counts) == len(set(offers)), "one object for each"
    assert events.dropped == 0
