"""The reflector: what its handler hears, whatever server and connection do, and that it asks no more than it should."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kube.access import Access, Credential, FixedCredentials
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject, object_at, text_at
from kube.client import Client
from kube.client import RequestLimits as ClientLimits
from kube.collection import Collection
from kube.errors import BadAnswer, Forbidden, ServerFault
from kube.reflector import Reflector, ReflectorLimits
from tests.kube.conftest import client_of
from tests.kube.server import AT_ONCE, CannedAnswer, StubApiServer, refused
from tests.kube.watched import (
    PATH,
    QUICK,
    SETTLED,
    Notes,
    WatchedCollection,
    bookmark,
    event,
    expired,
    fed,
    heard,
    line,
    not_now,
    reflecting,
    thing,
    watched,
)
from tests.waiting import until


def test_it_lists_and_then_tells_of_every_change_in_order() -> None:
    with watched() as collection:
        collection.things = [thing("a", 1), thing("b", 2)]
        notes = Notes()
        with reflecting(collection, notes) as reflector:
            assert reflector.synced.wait(60)
            collection.send(event("ADDED", thing("c", 11)), event("MODIFIED", thing("a", 12)), bookmark(15))
            collection.send(event("DELETED", thing("b", 16)))
            heard(notes, "replaced a,b @10", "applied c", "applied a", "bookmark 15", "deleted b")
            assert len(notes.threads) == 1
            status = reflector.status()
        assert (status.synced, status.lists, status.watches, status.events) == (True, 1, 1, 3)
        assert (status.failures, status.failing, status.watching) == (0, "", True)
        assert not reflector.status().watching


def test_a_watch_is_asked_for_with_bookmarks_a_time_and_the_selector() -> None:
    with watched() as collection:
        with reflecting(collection, Notes()):
            until(lambda: collection.queries(watch=True))
        assert collection.queries(watch=False) == [{"fieldSelector": "spec.nodeName=n", "limit": "500"}]
        assert collection.queries(watch=True)[0] == {
            "fieldSelector": "spec.nodeName=n",
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": "10",
            "timeoutSeconds": "450",
        }


def test_after_the_end_of_a_watch_it_goes_on_from_where_it_was() -> None:
    with watched() as collection:
        collection.watches.extend(
            (
                fed(event("ADDED", thing("a", 11))),
                fed(event("ADDED", thing("b", 12)), bookmark(20)),
                fed(event("ADDED", thing("c", 21)), b'{"type": "ADDED", "obj', whole=False),
            )
        )
        notes = Notes()
        with reflecting(collection, notes, limits=SETTLED) as reflector:
            until(lambda: len(collection.queries(watch=True)) == 4)
            assert reflector.status().lists == 1
        assert [query["resourceVersion"] for query in collection.queries(watch=True)] == ["10", "11", "20", "21"]
        heard(notes, "replaced  @10", "applied a", "applied b", "bookmark 20", "applied c")


@pytest.mark.parametrize("answer", [fed(expired()), refused(410, "Expired", "too old resource version")])
def test_a_version_that_is_forgotten_is_listed_anew_at_once(answer: CannedAnswer) -> None:
    with watched() as collection:
        collection.watches.append(answer)
        notes = Notes()
        with reflecting(collection, notes, policy=BackoffPolicy(first=60)):
            collection.send(event("ADDED", thing("a", 11)))
            heard(notes, "replaced  @10", "replaced  @10", "applied a")


def test_versions_that_are_forgotten_again_and_again_are_not_listed_without_a_wait() -> None:
    with watched() as collection:
        collection.every_watch = fed(expired())
        with reflecting(collection, Notes(), policy=BackoffPolicy(first=60)) as reflector:
            until(lambda: reflector.status().failures == 2)
            assert reflector.status().failing == f"GET {PATH}: 410 Expired: too old resource version"
        assert (len(collection.queries(watch=False)), len(collection.queries(watch=True))) == (2, 2)


@pytest.mark.parametrize(
    "answer",
    [not_now(), fed(), fed(b"<html>\n"), fed(event("ADDED", thing("a", 5)), whole=False), CannedAnswer(hang_up=True)],
)
def test_a_server_that_fails_every_watch_is_asked_ever_more_seldom(answer: CannedAnswer) -> None:
    with watched() as collection:
        collection.every_watch = answer
        with reflecting(collection, Notes(), policy=BackoffPolicy(first=0.05, most=30)) as reflector:
            began = time.monotonic()
            until(lambda: reflector.status().failures >= 4)
            # Three waits: three quarters of 50, 100, 200 ms.
            assert time.monotonic() - began >= 0.26
            assert len(collection.queries(watch=True)) <= 5
            assert len(collection.queries(watch=False)) <= 4


def test_a_server_that_cannot_watch_is_listed_now_and_then() -> None:
    with watched() as collection:
        collection.every_watch = not_now()
        notes = Notes()
        with reflecting(collection, notes) as reflector:
            until(lambda: len(notes.heard) >= 3)
            assert reflector.status().failing == f"GET {PATH}: 500 InternalError: not now"


@pytest.mark.parametrize(("asked", "seconds"), [(1, 1.0), (10**400, 2.0**31)])
def test_an_error_event_may_ask_for_a_wait(asked: int, seconds: float) -> None:
    error: JsonObject = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "later"}
    with watched() as collection:
        collection.watches.append(fed(event("ERROR", {**error, "details": {"retryAfterSeconds": asked}})))
        failures: list[Exception] = []
        policy = BackoffPolicy(first=0.001, most=0.002, longest=0.05)
        with reflecting(collection, Notes(), policy=policy, on_failure=failures.append) as reflector:
            until(lambda: reflector.status().watches == 2)
    (fault,) = failures
    assert isinstance(fault, ServerFault)
    assert (str(fault), fault.retry_after) == (f"GET {PATH}: 500 InternalError: later", seconds)


def test_a_list_that_is_refused_is_asked_for_until_it_comes() -> None:
    failures: list[Exception] = []
    with watched() as collection:
        collection.lists.extend((refused(403, "Forbidden", "no"), not_now(503), CannedAnswer(body=b"garbage")))
        notes = Notes()
        with reflecting(collection, notes, on_failure=failures.append) as reflector:
            assert not reflector.synced.is_set()
            assert reflector.synced.wait(60)
            until(lambda: reflector.status().watching)
            status = reflector.status()
        assert (status.lists, status.failures, status.failing) == (4, 3, "")
        assert [type(error) for error in failures[::2]] == [Forbidden, BadAnswer]
        heard(notes, "replaced  @10")


def test_a_list_without_a_version_is_refused() -> None:
    with watched() as collection:
        collection.lists.append(CannedAnswer.of({"items": []}))
        failures: list[Exception] = []
        with reflecting(collection, Notes(), on_failure=failures.append) as reflector:
            assert reflector.synced.wait(60)
        text = f"GET {PATH}: 200: the list has no resourceVersion, so it has no watch"
        assert [str(error) for error in failures] == [text]


@pytest.mark.parametrize("answer", [fed(b"garbage\n"), fed(event("RENAMED", thing("a", 11))), fed(event("ADDED", {}))])
def test_after_what_is_no_event_everything_is_read_anew(answer: CannedAnswer) -> None:
    with watched() as collection:
        collection.watches.append(answer)
        notes = Notes()
        with reflecting(collection, notes) as reflector:
            heard(notes, "replaced  @10", "replaced  @10")
            assert reflector.status().failures == 1


LARGE: JsonObject = {"text": "x" * 300_000}
NO_JSON = b'{"type":"MODIFIED","object":{"metadata":{"name":"b","resourceVersion":"12"},"spec":{"a":oops}}}\n'


@pytest.mark.parametrize("change", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_that_cannot_be_read_is_passed_over_by_name_and_the_watch_goes_on(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    with watched() as collection:
        collection.watches.append(fed(event(change, thing("a", 11, **LARGE)), NO_JSON, event("ADDED", thing("c", 13))))
        access = Access(collection.server.url, "a test", FixedCredentials("none", Credential("")))
        client = Client(access, random=lambda: 0.5, limits=ClientLimits(line=100_000), policy=AT_ONCE)
        notes, failures = Notes(), list[Exception]()
        source = Collection(client, PATH)
        reflector = Reflector(
            source, notes, random=lambda: 0.5, policy=QUICK, limits=SETTLED, on_failure=failures.append
        )
        reflector.start()
        seen = {"ADDED": "applied a", "MODIFIED": "bookmark 11", "DELETED": "deleted a"}[change]
        heard(notes, "replaced  @10", seen, "bookmark 12", "applied c")
        until(lambda: len(collection.queries(watch=True)) == 2)
        assert reflector.stop(10)
        assert collection.queries(watch=True)[1]["resourceVersion"] == "13"
    assert (len(collection.queries(watch=False)), failures) == (1, [])
    texts = [vars(record)["object"] for record in caplog.records if record.getMessage() == "an object cannot be read"]
    assert texts[0].startswith("a has more than 100000 bytes in fields that are used (300")
    assert texts[1] == f"b is not a JSON object ({len(NO_JSON) - 1} bytes in all)"


@pytest.mark.parametrize("levels", [1500, 100_000])
def test_an_event_whose_object_nests_without_end_is_told_like_any_other(levels: int) -> None:
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    sent = line(event("ADDED", thing("a", 11, spec={"deep": "@deep@", "x": 1}))).replace(b'"@deep@"', deep)
    with watched() as collection:
        notes = Notes()
        with reflecting(collection, notes) as reflector:
            collection.send(sent, event("ADDED", thing("b", 12)))
            heard(notes, "replaced  @10", "applied a", "applied b")
            assert reflector.status().failures == 0
    assert object_at(notes.objects[0], "spec")["x"] == 1


def test_an_object_of_a_list_that_cannot_be_read_is_told_by_its_name_and_not_taken_for_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with watched() as collection:
        collection.things = [thing("a", 1), thing("b", 2, **LARGE), thing("c", 3)]
        access = Access(collection.server.url, "a test", FixedCredentials("none", Credential("")))
        client = Client(access, random=lambda: 0.5, limits=ClientLimits(largest=100_000), policy=AT_ONCE)
        notes = Notes()
        reflector = Reflector(Collection(client, PATH), notes, random=lambda: 0.5, policy=QUICK)
        reflector.start()
        heard(notes, "replaced a,c,b @10")
        assert reflector.stop(10)
    assert [each for each in notes.objects if "text" in each] == []
    assert [record.getMessage() for record in caplog.records] == ["an object cannot be read"]


def test_of_many_objects_that_cannot_be_read_some_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with watched() as collection:
        collection.things = [thing(f"t{number}", number, text="x" * 2000) for number in range(300)]
        access = Access(collection.server.url, "a test", FixedCredentials("none", Credential("")))
        client = Client(access, random=lambda: 0.5, limits=ClientLimits(largest=1000), policy=AT_ONCE)
        reflector = Reflector(Collection(client, PATH), Notes(), random=lambda: 0.5, policy=QUICK)
        reflector.start()
        assert reflector.synced.wait(10)
        assert reflector.stop(10)
    assert len(caplog.records) == 20


def test_a_connection_that_is_silent_for_too_long_is_given_up() -> None:
    with watched() as collection:
        limits = ReflectorLimits(watch=(0.02, 0.02), slack=0.03, settled=0.01)
        with reflecting(collection, Notes(), limits=limits) as reflector:
            until(lambda: len(collection.queries(watch=True)) >= 3)
            assert reflector.status().lists == 1


def test_a_server_that_drips_does_not_keep_a_watch_for_ever() -> None:
    with watched() as collection:

        def feed(send: Callable[[bytes], None]) -> bool:
            while not collection.server.closing.wait(0.005):
                send(b"\n")
            return True

        collection.every_watch = CannedAnswer(feed=feed)
        with reflecting(collection, Notes(), limits=ReflectorLimits(watch=(0.02, 0.02), slack=0.03, settled=0.01)):
            until(lambda: len(collection.queries(watch=True)) >= 2)


STREAMING = ReflectorLimits(settled=0.0, streams_lists=True)
END: JsonObject = {
    "type": "BOOKMARK",
    "object": {"metadata": {"resourceVersion": "20", "annotations": {"k8s.io/initial-events-end": "true"}}},
}


def test_a_watch_may_begin_with_the_list() -> None:
    with watched() as collection:
        changes = (event("MODIFIED", thing("a", 12)), event("DELETED", thing("b", 13)))
        listed = (event("ADDED", thing("a", 1)), event("ADDED", thing("b", 2)), *changes, event("ADDED", thing("c", 3)))
        collection.watches.append(fed(*listed, END, event("ADDED", thing("d", 21))))
        notes = Notes()
        with reflecting(collection, notes, limits=STREAMING) as reflector:
            heard(notes, "replaced a,c @20", "applied d")
            until(lambda: len(collection.queries(watch=True)) == 2)
            assert (reflector.status().lists, collection.queries(watch=False)) == (1, [])
        asked, following = collection.queries(watch=True)
        assert asked == {
            "fieldSelector": "spec.nodeName=n",
            "watch": "1",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "450",
        }
        assert (following["resourceVersion"], "sendInitialEvents" in following) == ("21", False)
        assert [text_at(one, "metadata", "resourceVersion") for one in notes.objects] == ["12", "3", "21"]


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_server_that_cannot_begin_a_watch_with_the_list_is_asked_for_a_list_at_once(status: int) -> None:
    with watched() as collection:
        collection.things = [thing("a", 1)]
        collection.watches.append(refused(status, "Invalid", "sendInitialEvents is forbidden"))
        notes = Notes()
        with reflecting(collection, notes, policy=BackoffPolicy(first=60), limits=STREAMING) as reflector:
            heard(notes, "replaced a @10")
            until(lambda: reflector.status().watching)
            assert reflector.status().failures == 0


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (fed(event("ADDED", thing("a", 1)), bookmark(5)), "the watch does not begin with the list that was asked for"),
        (fed(event("ADDED", thing("a", 1))), "the watch ended before its list did"),
    ],
)
def test_a_watch_without_the_end_of_its_list_is_not_believed(answer: CannedAnswer, problem: str) -> None:
    with watched() as collection:
        collection.watches.append(answer)
        collection.watches.append(refused(422, "Invalid", "no"))
        failures: list[Exception] = []
        notes = Notes()
        with reflecting(collection, notes, limits=STREAMING, on_failure=failures.append):
            until(lambda: bool(notes.heard), "a list of its own")
        # The refused watch makes it list once more, sooner or later.
        assert set(notes.heard) == {"replaced  @10"}
        assert str(failures[0]) == f"GET {PATH}: 200: {problem}"


def test_an_object_that_cannot_be_read_is_in_the_list_of_a_watch_by_its_name() -> None:
    with watched() as collection:
        collection.watches.append(fed(event("ADDED", thing("a", 1, **LARGE)), event("ADDED", thing("b", 2)), END))
        access = Access(collection.server.url, "a test", FixedCredentials("none", Credential("")))
        client = Client(access, random=lambda: 0.5, limits=ClientLimits(line=100_000), policy=AT_ONCE)
        notes = Notes()
        source = Collection(client, PATH)
        reflector = Reflector(source, notes, random=lambda: 0.5, policy=QUICK, limits=STREAMING)
        reflector.start()
        heard(notes, "replaced a,b @20")
        assert reflector.stop(10)


def test_an_outage_ends_without_a_list() -> None:
    with StubApiServer() as first:
        collection, notes = WatchedCollection(first), Notes()
        first.respond = collection.answer
        source = Collection(client_of(first), PATH)
        reflector = Reflector(source, notes, random=lambda: 0.5, policy=QUICK, limits=SETTLED)
        reflector.start()
        until(lambda: reflector.status().watching)
        port = first.port
    until(lambda: reflector.status().failures >= 3)
    assert "cannot be reached" in reflector.status().failing
    second = StubApiServer(port=port)
    collection = WatchedCollection(second)
    second.respond = collection.answer
    with second:
        collection.send(event("ADDED", thing("a", 11)))
        heard(notes, "replaced  @10", "applied a")
        assert reflector.status().failing == ""
        assert collection.queries(watch=False) == []
        assert reflector.stop(10)
