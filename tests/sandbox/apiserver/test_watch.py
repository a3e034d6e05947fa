"""Watches: resuming, selectors, bookmarks, ends."""

from __future__ import annotations

from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import SLICES, ask, slice_of, watching


def test_watch_begins_with_what_there_is(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of("a"))
    with watching(server, SLICES) as stream:
        assert stream.first(1) == [("ADDED", "a")]
        server.store.create("resourceslices", slice_of("b"))
        server.store.patch("resourceslices", "b", {"metadata": {"labels": {"x": "y"}}})
        server.store.delete("resourceslices", "a")
        assert stream.first(4)[1:] == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
    assert stream.events[0]["object"]["kind"] == "ResourceSlice"


def test_watch_resumes_after_a_resource_version(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of("a"))
    version = ask(server, "GET", SLICES).body["metadata"]["resourceVersion"]
    server.store.create("resourceslices", slice_of("b"))
    server.store.delete("resourceslices", "a")
    with watching(server, SLICES, resourceVersion=version) as stream:
        assert stream.first(2) == [("ADDED", "b"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in stream.events]
    assert versions == [int(version) + 1, int(version) + 2]


def test_changes_that_change_nothing_are_not_told(server: ApiServer) -> None:
    made = server.store.create("resourceslices", slice_of("a"))
    with watching(server, SLICES, resourceVersion=str(server.store.version)) as stream:
        server.store.replace("resourceslices", made)
        server.store.create("resourceslices", slice_of("b"))
        assert stream.first(1) == [("ADDED", "b")]


def test_object_that_is_no_longer_chosen_is_deleted_for_the_watch(server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "n", "labels": {"gpu": "yes"}}})
    with watching(server, "/api/v1/nodes", labelSelector="gpu=yes") as stream:
        assert stream.first(1) == [("ADDED", "n")]
        server.store.patch("nodes", "n", {"metadata": {"labels": {"gpu": "no"}}})
        server.store.patch("nodes", "n", {"metadata": {"labels": {"gpu": "maybe"}}})
        server.store.patch("nodes", "n", {"metadata": {"labels": {"gpu": "yes"}}})
        assert stream.first(3) == [("ADDED", "n"), ("DELETED", "n"), ("ADDED", "n")]
    assert stream.events[1]["object"]["metadata"]["labels"] == {"gpu": "yes"}
    assert stream.events[1]["object"]["metadata"]["resourceVersion"] == "992"


def test_watch_sees_its_own_namespace_and_fields_alone(server: ApiServer) -> None:
    with watching(server, SLICES, fieldSelector="spec.nodeName=one") as stream:
        server.store.create("resourceslices", slice_of("a", node="two"))
        server.store.create("resourceslices", slice_of("b", node="one"))
        assert stream.first(1) == [("ADDED", "b")]
    with watching(server, "/api/v1/namespaces/here/pods") as stream:
        server.store.create("pods", {"metadata": {"name": "p", "namespace": "there"}})
        server.store.create("pods", {"metadata": {"name": "p", "namespace": "here"}})
        assert stream.first(1) == [("ADDED", "p")]
    assert stream.events[0]["object"]["metadata"]["namespace"] == "here"


def test_events_are_in_the_version_of_the_request(server: ApiServer) -> None:
    with watching(server, SLICES.replace("/v1/", "/v1beta1/")) as stream:
        server.store.create("resourceslices", slice_of(devices=[{"name": "d", "attributes": {"a": {"int": 1}}}]))
        stream.first(1)
    seen = stream.events[0]["object"]
    assert seen["apiVersion"] == "resource.k8s.io/v1beta1"
    assert seen["spec"]["devices"] == [{"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}]


def test_bookmarks_come_when_they_are_wanted() -> None:
    with ApiServer(bookmarks=0.05) as server:
        server.store.create("nodes", {"metadata": {"name": "n"}})
        version = str(server.store.version)
        with watching(server, SLICES, resourceVersion=version, allowWatchBookmarks="true") as stream:
            assert stream.first(1) == [("BOOKMARK", "")]
            assert stream.events[0]["object"]["metadata"]["resourceVersion"] == version
            server.store.create("nodes", {"metadata": {"name": "m"}})
            new = str(server.store.version)
            count = len(stream.events)
            stream.first(count + 2)
            assert stream.events[-1]["object"]["metadata"]["resourceVersion"] == new


def test_watch_ends_after_its_time(server: ApiServer) -> None:
    with watching(server, SLICES, timeoutSeconds="1", allowWatchBookmarks="true") as stream:
        assert stream.ended()
    assert stream.events == []


def test_bookmark_comes_shortly_before_the_end(server: ApiServer) -> None:
    with watching(server, SLICES, timeoutSeconds="3", allowWatchBookmarks="true") as stream:
        assert stream.first(1) == [("BOOKMARK", "")]


def test_initial_state_can_be_streamed(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of("a"))
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    with watching(server, SLICES, **query) as stream:
        assert stream.first(2) == [("ADDED", "a"), ("BOOKMARK", "")]
    annotations = stream.events[1]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
    assert ask(server, "GET", SLICES, watch="true", sendInitialEvents="true").code == 422


def test_resuming_from_forgotten_history_is_told_by_an_error_event(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of("a"))
    server.forget_history()
    with watching(server, SLICES, resourceVersion="990") as stream:
        assert stream.ended()
    assert [event["type"] for event in stream.events] == ["ERROR"]
    assert (stream.events[0]["object"]["code"], stream.events[0]["object"]["reason"]) == (410, "Expired")


def test_running_watches_live_through_forgetting(server: ApiServer) -> None:
    with watching(server, SLICES, resourceVersion=str(server.store.version)) as stream:
        server.requests.wait(lambda asked: asked)
        server.store.create("resourceslices", slice_of("a"))
        stream.first(1)
        server.forget_history()
        server.store.create("resourceslices", slice_of("b"))
        assert stream.first(2) == [("ADDED", "a"), ("ADDED", "b")]


def test_closed_watches_end_without_an_error(server: ApiServer) -> None:
    with watching(server, SLICES) as stream:
        server.close_watches()
        assert stream.ended()
    assert stream.events == []


def test_watches_can_be_closed_as_expired(server: ApiServer) -> None:
    with watching(server, SLICES) as stream:
        server.close_watches(expired=True)
        assert stream.ended()
    assert [event["object"]["code"] for event in stream.events] == [410]
    with watching(server, SLICES) as stream:
        server.store.create("resourceslices", slice_of("a"))
        assert stream.first(1) == [("ADDED", "a")]
