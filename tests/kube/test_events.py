"""Events: what is posted, how little of it, and what becomes of them while the API server is away."""

from __future__ import annotations

import pytest

from kube.backoff import BackoffPolicy
from kube.bodies import text_at
from kube.errors import Unreachable, refusal
from kube.events import MAX_MESSAGE, EventLimits, Subject
from tests.kube.conftest import client_of
from tests.kube.server import StubApiServer, refused
from tests.making.event_posters import EVENTS, CountedPoster, RecordingClient, RunningPoster, poster
from tests.waiting import until


def test_an_event_looks_like_the_kubelets(server: StubApiServer) -> None:
    with RunningPoster(poster(), client_of(server)) as events:
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


def test_the_same_event_again_is_patched(server: StubApiServer) -> None:
    with RunningPoster(poster(), client_of(server)) as events:
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


def test_an_event_whose_object_has_expired_is_created_anew(server: StubApiServer) -> None:
    with RunningPoster(poster(), client_of(server)) as events:
        events.offer("Normal", "A", "text", 0.0)
        until(lambda: events.posted == 1)
        server.answers.append(refused(404, "NotFound", "expired"))
        events.offer("Normal", "A", "text", 60.0)
        until(lambda: events.posted == 2)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "POST"]
    assert text_at(server.asked[2].body, "metadata", "name") == "worker-1.0000000000000001"
    assert text_at(server.asked[2].body, "firstTimestamp") == "1970-01-01T00:01:00Z"


def test_what_waits_is_one_event_with_a_count(recorder: RecordingClient) -> None:
    events = poster()
    for at in (30.0, 10.0, 20.0):
        events.offer("Warning", "A", "text", at)
    with RunningPoster(events, recorder):
        until(lambda: events.posted == 3)
    (body,) = recorder.created
    assert (body["count"], body["firstTimestamp"], body["lastTimestamp"]) == (
        3,
        "1970-01-01T00:00:10Z",
        "1970-01-01T00:00:30Z",
    )


def test_the_oldest_goes_when_too_many_wait_and_is_counted(recorder: RecordingClient) -> None:
    events = poster(EventLimits(waiting=3))
    for reason in ("A", "A", "B", "C", "D"):
        events.offer("Warning", reason, "text", 0.0)
    assert events.dropped == 2
    with RunningPoster(events, recorder):
        until(lambda: events.posted == 3)
    assert [body["reason"] for body in recorder.created] == ["B", "C", "D"]


def test_a_flood_is_slowed_down_and_then_counted_together(recorder: RecordingClient) -> None:
    now = [0.0]
    events = poster(EventLimits(burst=2, interval=10.0), monotonic=lambda: now[0])
    with RunningPoster(events, recorder):
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


@pytest.mark.parametrize(("status", "reason"), [(422, "Invalid"), (400, "BadRequest"), (404, "NotFound")])
def test_an_event_that_is_refused_for_good_does_not_hold_up_others(
    recorder: RecordingClient, status: int, reason: str
) -> None:
    recorder.faults = [refusal("POST", EVENTS, status, reason, "no")]
    events = poster()
    events.offer("Warning", "A", "text", 0.0)
    events.offer("Warning", "B", "text", 0.0)
    with RunningPoster(events, recorder):
        until(lambda: events.posted == 1)
    assert [body["reason"] for body in recorder.created] == ["B"]
    assert (events.dropped, events.failed) == (1, 1)


def test_closing_ends_a_long_wait(recorder: RecordingClient) -> None:
    recorder.faults = [Unreachable("POST", EVENTS, "away", sent=False)]
    events = CountedPoster(
        Subject.node("a"),
        component="c",
        instance="a",
        random=lambda: 1.0,
        policy=BackoffPolicy(first=600.0, most=600.0),
    )
    with RunningPoster(events, recorder):
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.failing)


def test_long_texts_and_names_are_cut_to_what_is_accepted(recorder: RecordingClient) -> None:
    name = "a" * 235 + "." + "b" * 17
    events = CountedPoster(Subject.node(name), component="c", instance=name, random=lambda: 0.5)
    events.offer("Warning", "R" * 200, "m" * 5000, 0.0)
    with RunningPoster(events, recorder):
        until(lambda: events.posted == 1)
    (body,) = recorder.created
    message, made = text_at(body, "message"), text_at(body, "metadata", "name")
    assert len(message) == MAX_MESSAGE
    assert message.endswith("…")
    assert len(text_at(body, "reason")) == 128
    assert len(made) <= 253
    assert ".." not in made
    assert made.startswith("a" * 235)


def test_names_differ_from_process_to_process(recorder: RecordingClient) -> None:
    for _ in range(2):
        events = CountedPoster(Subject.node("n"), component="c", instance="n", random=lambda: 0.5)
        events.offer("Warning", "A", "text", 0.0)
        with RunningPoster(events, recorder):
            until(lambda made=events: made.posted == 1)  # type: ignore[misc]
    one, other = (text_at(body, "metadata", "name") for body in recorder.created)
    assert one != other


def test_only_so_many_posted_events_are_remembered(recorder: RecordingClient) -> None:
    events = poster(EventLimits(remembered=2))
    with RunningPoster(events, recorder):
        for number, reason in enumerate("ABCA"):
            events.offer("Warning", reason, "text", 0.0)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
    assert [body["reason"] for body in recorder.created] == ["A", "B", "C", "A"]
    assert recorder.patched == []


def test_those_that_happen_are_remembered_and_those_that_do_not_are_forgotten(recorder: RecordingClient) -> None:
    events = poster(EventLimits(remembered=2))
    with RunningPoster(events, recorder):
        for number, reason in enumerate("ABACA"):
            events.offer("Warning", reason, "text", 0.0)
            until(lambda: events.posted == number + 1)  # noqa: B023 - waited for inside the loop
    assert [body["reason"] for body in recorder.created] == ["A", "B", "C"]
    assert len(recorder.patched) == 2


def test_a_conflict_that_is_none_of_names_is_tried_again_and_patches_nothing(recorder: RecordingClient) -> None:
    recorder.faults = [refusal("POST", EVENTS, 409, "Conflict", "the namespace is changing")]
    with RunningPoster(poster(), recorder) as events:
        events.offer("Warning", "A", "text", 0.0)
        until(lambda: events.posted == 1)
    assert (len(recorder.created), recorder.patched) == (1, [])
