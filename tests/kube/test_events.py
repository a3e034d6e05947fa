"""Events: what is posted, how little of it, and what becomes of them while the API server is away."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.backoff import BackoffPolicy
from kube.bodies import Json, JsonObject, object_at, text_at
from kube.errors import Forbidden, NotFound, Unreachable, refusal
from kube.events import MAX_MESSAGE, EventLimits, EventPoster, Subject
from tests.kube.conftest import AT_ONCE, client_of
from tests.kube.server import Answer, ApiServer, Asked, refused

EVENTS = "/api/v1/namespaces/default/events"


class CountedPoster(EventPoster):
    """A poster that is its own observer."""

    def __init__(self, subject: Subject, **options: Any) -> None:
        self.figures = Figures()
        super().__init__(subject, self.figures, **options)

    @property
    def posted(self) -> int:
        return self.figures.total_posted

    @property
    def dropped(self) -> int:
        return self.figures.total_dropped

    @property
    def failed(self) -> int:
        return self.figures.total_failed


class Figures:
    """What an observer was told, added up."""

    def __init__(self) -> None:
        self.total_posted = self.total_dropped = self.total_failed = 0

    def posted(self, events: int) -> None:
        self.total_posted += events

    def dropped(self, events: int) -> None:
        self.total_dropped += events

    def failed(self) -> None:
        self.total_failed += 1


def poster(limits: EventLimits | None = None, monotonic: Callable[[], float] = time.monotonic) -> CountedPoster:
    names = (f"{number:016x}" for number in itertools.count())
    return CountedPoster(
        Subject.node("worker-1"),
        component="ostler",
        instance="worker-1",
        random=lambda: 0.5,
        monotonic=monotonic,
        unique=lambda: next(names),
        limits=limits or EventLimits(),
        policy=AT_ONCE,
    )


class Running:
    """Posts in a thread; ``client`` is a real one or a recorder."""

    def __init__(self, made: CountedPoster, client: object) -> None:
        self.poster = made
        self._thread = threading.Thread(target=made.run, args=(client,))

    def __enter__(self) -> CountedPoster:
        self._thread.start()
        return self.poster

    def __exit__(self, *fault: object) -> None:
        self.poster.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.002)


class Recorder:
    """A client that remembers, and fails when told to."""

    def __init__(self) -> None:
        self.created: list[JsonObject] = []
        self.patched: list[tuple[str, Json]] = []
        self.faults: list[Exception] = []

    def create(self, path: str, body: JsonObject) -> JsonObject:
        assert path == EVENTS
        self._fail()
        self.created.append(body)
        return body

    def patch(self, path: str, body: Json) -> JsonObject:
        self._fail()
        self.patched.append((path, body))
        return {}

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    assert made.faults == [], "every fault was met"


def test_an_event_looks_like_the_kubelets(server: ApiServer) -> None:
    with Running(poster(), client_of(server)) as events:
        events.offer("Warning", "ForeignPlugin", "another plugin", 1_700_000_000.9)
        until(lambda: events.posted == 1)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", EVENTS)
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "worker-1.0000000000000000", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "worker-1"},
        "type": "Warning",
        "reason": "ForeignPlugin",
        "message": "another plugin",
        "count": 1,
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "source": {"component": "ostler", "host": "worker-1"},
        "reportingComponent": "ostler",
        "reportingInstance": "worker-1",
    }


def test_the_same_event_again_is_patched(server: ApiServer) -> None:
    with Running(poster(), client_of(server)) as events:
        for number in range(3):
            events.offer("Warning", "A", "text", 1_700_000_000.0 + number)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
        events.offer("Warning", "A", "another text", 1_700_000_009.0)
        until(lambda: events.posted == 4)
    created, first, second, other = server.asked
    assert created.body["count"] == 1
    assert [asked.path for asked in (first, second)] == [f"{EVENTS}/worker-1.0000000000000000"] * 2
    assert first.headers["Content-Type"] == "application/merge-patch+json"
    assert [asked.body for asked in (first, second)] == [
        {"count": 2, "lastTimestamp": "2023-11-14T22:13:21Z"},
        {"count": 3, "lastTimestamp": "2023-11-14T22:13:22Z"},
    ]
    assert (other.method, text_at(other.body, "message")) == ("POST", "another text")


def test_an_event_whose_object_has_expired_is_created_anew(server: ApiServer) -> None:
    with Running(poster(), client_of(server)) as events:
        events.offer("Normal", "A", "text", 0.0)
        until(lambda: events.posted == 1)
        server.answers.append(refused(404, "NotFound", "expired"))
        events.offer("Normal", "A", "text", 60.0)
        until(lambda: events.posted == 2)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "POST"]
    assert text_at(server.asked[2].body, "metadata", "name") == "worker-1.0000000000000001"
    assert text_at(server.asked[2].body, "firstTimestamp") == "1970-01-01T00:01:00Z"


def test_what_waits_is_one_event_with_a_count(recorder: Recorder) -> None:
    events = poster()
    for at in (30.0, 10.0, 20.0):
        events.offer("Warning", "A", "text", at)
    with Running(events, recorder):
        until(lambda: events.posted == 3)
    (body,) = recorder.created
    assert (body["count"], body["firstTimestamp"], body["lastTimestamp"]) == (
        3,
        "1970-01-01T00:00:10Z",
        "1970-01-01T00:00:30Z",
    )


def test_the_oldest_goes_when_too_many_wait_and_is_counted(recorder: Recorder) -> None:
    events = poster(EventLimits(waiting=3))
    for reason in ("A", "A", "B", "C", "D"):
        events.offer("Warning", reason, "text", 0.0)
    assert events.dropped == 2
    with Running(events, recorder):
        until(lambda: events.posted == 3)
    assert [body["reason"] for body in recorder.created] == ["B", "C", "D"]


def test_a_flood_is_slowed_down_and_then_counted_together(recorder: Recorder) -> None:
    now = [0.0]
    events = poster(EventLimits(burst=2, interval=10.0), monotonic=lambda: now[0])
    with Running(events, recorder):
        for number in range(2):
            events.offer("Warning", "Burst", f"{number}", 0.0)
        until(lambda: events.posted == 2)
        for _ in range(50):
            events.offer("Warning", "Flood", "text", 0.0)
        assert len(recorder.created) == 2
        now[0] = 10.0
        events.offer("Warning", "Flood", "text", 10.0)
        until(lambda: events.posted == 53)
        assert [body["count"] for body in recorder.created] == [1, 1, 51]
        events.offer("Warning", "Later", "text", 10.0)
        now[0] = 1e6
        for number in range(4):
            events.offer("Warning", "Burst", f"again {number}", 0.0)
        until(lambda: events.posted == 55)
        assert len(recorder.created) == 5, "tokens never add up to more than a burst"


def test_an_outage_is_survived_in_order_and_said_once(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    recorder.faults = [Unreachable("POST", EVENTS, "connection refused", sent=False)] * 5
    events = poster()
    for reason in ("A", "B", "C"):
        events.offer("Warning", reason, "text", 0.0)
    with Running(events, recorder):
        until(lambda: events.posted == 3)
    assert [body["reason"] for body in recorder.created] == ["A", "B", "C"]
    assert (events.failed, events.dropped, events.failing) == (5, 0, "")
    assert len([entry for entry in caplog.records if "cannot be posted" in entry.message]) == 1


def test_during_an_outage_the_reason_is_shown_and_nothing_blocks() -> None:
    gate = threading.Event()

    class Away(Recorder):
        def create(self, path: str, body: JsonObject) -> JsonObject:
            gate.wait(60)
            raise Forbidden("POST", path, 403, "Forbidden", 'cannot create resource "events"')

    events = poster()
    with Running(events, Away()):
        events.offer("Warning", "A", "text", 0.0)
        for number in range(200):
            events.offer("Normal", "Other", f"{number}", 0.0)
        gate.set()
        until(lambda: events.failing)
        assert events.failing == f'POST {EVENTS}: 403 Forbidden: cannot create resource "events"'
    assert events.posted == 0
    assert events.dropped >= 100


def test_a_lost_answer_makes_no_second_event(server: ApiServer) -> None:
    stored: dict[str, Asked] = {}

    def respond(asked: Asked) -> Answer:
        name = text_at(asked.body, "metadata", "name")
        if asked.method == "POST" and name in stored:
            return refused(409, "AlreadyExists", f"{name} is there")
        stored[name] = asked
        return Answer(hang_up=True) if len(server.asked) == 1 else Answer()

    server.respond = respond
    with Running(poster(), client_of(server)) as events:
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.posted == 1)
    first, second, patch = server.asked
    assert (first.method, second.method, patch.method) == ("POST", "POST", "PATCH")
    assert object_at(first.body, "metadata") == object_at(second.body, "metadata")
    assert patch.body["count"] == 1


@pytest.mark.parametrize(("status", "reason"), [(422, "Invalid"), (400, "BadRequest"), (404, "NotFound")])
def test_an_event_that_is_refused_for_good_does_not_hold_up_others(
    recorder: Recorder, status: int, reason: str
) -> None:
    recorder.faults = [refusal("POST", EVENTS, status, reason, "no")]
    events = poster()
    events.offer("Warning", "A", "text", 0.0)
    events.offer("Warning", "B", "text", 0.0)
    with Running(events, recorder):
        until(lambda: events.posted == 1)
    assert [body["reason"] for body in recorder.created] == ["B"]
    assert (events.dropped, events.failed) == (1, 1)


def test_closing_ends_a_long_wait(recorder: Recorder) -> None:
    recorder.faults = [Unreachable("POST", EVENTS, "away", sent=False)]
    events = CountedPoster(
        Subject.node("a"),
        component="c",
        instance="a",
        random=lambda: 1.0,
        policy=BackoffPolicy(first=600.0, most=600.0),
    )
    with Running(events, recorder):
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.failing)


def test_long_texts_and_names_are_cut_to_what_is_accepted(recorder: Recorder) -> None:
    name = "a" * 235 + "." + "b" * 17
    events = CountedPoster(Subject.node(name), component="c", instance=name, random=lambda: 0.5)
    events.offer("Warning", "R" * 200, "m" * 5000, 0.0)
    with Running(events, recorder):
        until(lambda: events.posted == 1)
    (body,) = recorder.created
    message, made = text_at(body, "message"), text_at(body, "metadata", "name")
    assert len(message) == MAX_MESSAGE
    assert message.endswith("…")
    assert len(text_at(body, "reason")) == 128
    assert len(made) <= 253
    assert ".." not in made
    assert made.startswith("a" * 235)


def test_names_differ_from_process_to_process(recorder: Recorder) -> None:
    for _ in range(2):
        events = CountedPoster(Subject.node("n"), component="c", instance="n", random=lambda: 0.5)
        events.offer("Warning", "A", "text", 0.0)
        with Running(events, recorder):
            until(lambda made=events: made.posted == 1)  # type: ignore[misc]
    one, other = (text_at(body, "metadata", "name") for body in recorder.created)
    assert one != other


def test_only_so_many_posted_events_are_remembered(recorder: Recorder) -> None:
    events = poster(EventLimits(remembered=2))
    with Running(events, recorder):
        for number, reason in enumerate("ABCA"):
            events.offer("Warning", reason, "text", 0.0)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
    assert [body["reason"] for body in recorder.created] == ["A", "B", "C", "A"]
    assert recorder.patched == []


def test_those_that_happen_are_remembered_and_those_that_do_not_are_forgotten(recorder: Recorder) -> None:
    events = poster(EventLimits(remembered=2))
    with Running(events, recorder):
        for number, reason in enumerate("ABACA"):
            events.offer("Warning", reason, "text", 0.0)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
    assert [body["reason"] for body in recorder.created] == ["A", "B", "C"]
    assert len(recorder.patched) == 2


def test_a_conflict_that_is_none_of_names_is_tried_again_and_patches_nothing(recorder: Recorder) -> None:
    recorder.faults = [refusal("POST", EVENTS, 409, "Conflict", "the namespace is changing")]
    with Running(poster(), recorder) as events:
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.posted == 1)
    assert (len(recorder.created), recorder.patched) == (1, [])


def test_one_that_fails_while_others_fill_its_place_is_dropped() -> None:
    on_its_way, gate = threading.Event(), threading.Event()

    class Away(Recorder):
        def create(self, path: str, body: JsonObject) -> JsonObject:
            if body["reason"] == "First":
                on_its_way.set()
                gate.wait(60)
                raise Unreachable("POST", path, "away", sent=False)
            return super().create(path, body)

    away, events = Away(), poster(EventLimits(waiting=2))
    with Running(events, away):
        events.offer("Warning", "First", "text", 0.0)
        assert on_its_way.wait(60)
        for reason in "AB":
            events.offer("Warning", reason, "text", 0.0)
        gate.set()
        until(lambda: events.posted == 2)
    assert [body["reason"] for body in away.created] == ["A", "B"]
    assert (events.dropped, events.failed) == (1, 1)


def test_waits_are_short_again_once_it_has_worked(recorder: Recorder) -> None:
    policy = BackoffPolicy(first=0.001, most=600.0)
    many = EventLimits(burst=100)
    events = CountedPoster(
        Subject.node("a"), component="c", instance="a", random=lambda: 0.5, policy=policy, limits=many
    )
    with Running(events, recorder):
        for number in range(20):
            recorder.faults = [Unreachable("POST", EVENTS, "away", sent=False)]
            events.offer("Warning", f"{number}", "text", 0.0)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
    assert events.failed == 20


def test_the_wait_that_a_busy_server_asks_for_is_kept(recorder: Recorder) -> None:
    recorder.faults = [refusal("POST", EVENTS, 429, "TooManyRequests", "busy", retry_after=300.0)]
    policy = BackoffPolicy(first=0.001, most=0.001, longest=300.0)
    events = CountedPoster(Subject.node("a"), component="c", instance="a", random=lambda: 0.5, policy=policy)
    with Running(events, recorder):
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.failed == 1)
        assert not threading.Event().wait(0.1), "time enough for a hundred attempts"
        assert recorder.created == []


def test_a_patch_that_fails_is_repeated_with_the_same_count(recorder: Recorder) -> None:
    events = poster()
    with Running(events, recorder):
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
    with Running(events, server):
        for reason in offers[early:]:
            events.offer("Warning", reason, "text", 0.0)
        until(lambda: events.posted == len(offers))
    assert sum(server.counts.values()) == len(offers)
    assert len(server.counts) == len(set(offers)), "one object for each"
    assert events.dropped == 0
