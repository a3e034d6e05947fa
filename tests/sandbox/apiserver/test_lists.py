"""Lists: what selectors choose, pages, resource versions."""

from __future__ import annotations

import pytest

from sandbox.apiserver.answers import Pages
from sandbox.apiserver.kinds import Catalogue
from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.routes import selector
from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import RESOURCES, SLICES, ask, claim_of, slice_of


def names(server: ApiServer, path: str = SLICES, **query: str) -> list[str]:
    reply = ask(server, "GET", path, **query)
    assert reply.code == 200, reply
    return [each["metadata"]["name"] for each in reply.body["items"]]


def test_items_do_not_say_what_they_are(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of())
    listed = ask(server, "GET", SLICES).body
    assert (listed["kind"], listed["apiVersion"]) == ("ResourceSliceList", "resource.k8s.io/v1")
    assert listed["metadata"]["resourceVersion"] == str(server.store.version)
    assert not {"kind", "apiVersion"} & set(listed["items"][0])


def test_list_is_ordered_and_of_all_namespaces(server: ApiServer) -> None:
    for name, namespace in (("b", "one"), ("a", "two"), ("a", "one")):
        server.store.create("resourceclaims", claim_of(name, namespace=namespace))
    assert names(server, f"{RESOURCES}/resourceclaims") == ["a", "b", "a"]
    assert names(server, f"{RESOURCES}/namespaces/one/resourceclaims") == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("spec.nodeName=one", ["a"]),
        ("spec.nodeName==two,spec.driver=drv.example.com", ["b"]),
        ("spec.nodeName!=one", ["b", "c"]),
        ("spec.nodeName=", ["c"]),
        ("metadata.name=c", ["c"]),
        ("spec.driver=other", []),
    ],
)
def test_field_selector_chooses(server: ApiServer, fields: str, found: list[str]) -> None:
    server.store.create("resourceslices", slice_of("a", node="one"))
    server.store.create("resourceslices", slice_of("b", node="two"))
    everywhere = slice_of("c", allNodes=True)
    del everywhere["spec"]["nodeName"]
    server.store.create("resourceslices", everywhere)
    assert names(server, fieldSelector=fields) == found


def test_field_that_cannot_be_selected_by_is_refused(server: ApiServer) -> None:
    reply = ask(server, "GET", SLICES, fieldSelector="spec.pool.name=p")
    assert (reply.code, reply.body["message"]) == (
        400,
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool.name",
    )


def test_pool_name_can_be_selected_by_since_1_37() -> None:
    with ApiServer(minor=37) as server:
        server.store.create("resourceslices", slice_of())
        assert names(server, fieldSelector="spec.pool.name=p") == ["s"]
        assert names(server, fieldSelector="spec.pool.name=q") == []


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("a", ["both", "one"]),
        ("!a", ["none"]),
        ("a=1", ["both", "one"]),
        ("a==1,b!=2", ["one"]),
        ("a in (1, 2),b notin (2)", ["one"]),
        ("b!=2", ["none", "one"]),
    ],
)
def test_label_selector_chooses(server: ApiServer, labels: str, found: list[str]) -> None:
    for name, own in (("none", {}), ("one", {"a": "1"}), ("both", {"a": "1", "b": "2"})):
        server.store.create("nodes", {"metadata": {"name": name, "labels": own}})
    assert names(server, "/api/v1/nodes", labelSelector=labels) == found


@pytest.mark.parametrize(("labels", "fields"), [("a b", ""), ("=", ""), ("a in 1", ""), ("", "spec.driver")])
def test_unreadable_selector_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(StatusError) as caught:
        selector(Catalogue().by_plural("resourceslices"), labels, fields)
    assert caught.value.code == 400


def test_field_values_may_be_escaped() -> None:
    chosen = selector(Catalogue().by_plural("resourceslices"), "", r"spec.driver=a\,b\=c\\")
    assert chosen.fields[0].values == frozenset({"a,b=c\\"})


def test_pages_show_the_state_of_the_first(server: ApiServer) -> None:
    for name in "abcde":
        server.store.create("resourceslices", slice_of(name))
    first = ask(server, "GET", SLICES, limit="2").body
    server.store.delete("resourceslices", "c")
    second = ask(server, "GET", SLICES, **{"limit": "2", "continue": first["metadata"]["continue"]}).body
    third = ask(server, "GET", SLICES, **{"limit": "2", "continue": second["metadata"]["continue"]}).body
    shown = [each["metadata"]["name"] for page in (first, second, third) for each in page["items"]]
    assert shown == list("abcde")
    assert first["metadata"]["remainingItemCount"] == 3
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {"995"}
    assert "continue" not in third["metadata"]


def test_page_after_the_history_is_gone_is_refused(server: ApiServer) -> None:
    for name in "ab":
        server.store.create("resourceslices", slice_of(name))
    token = ask(server, "GET", SLICES, limit="1").body["metadata"]["continue"]
    server.forget_history()
    reply = ask(server, "GET", SLICES, **{"limit": "1", "continue": token})
    assert (reply.code, reply.body["reason"]) == (410, "Expired")


def test_resource_version_that_has_not_been_is_refused(server: ApiServer) -> None:
    reply = ask(server, "GET", SLICES, resourceVersion="100000")
    assert (reply.code, reply.body["reason"]) == (504, "Timeout")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert reply.headers["Retry-After"] == "1"


def test_number_that_is_none_is_refused(server: ApiServer) -> None:
    assert ask(server, "GET", SLICES, limit="many").code == 400
    assert ask(server, "GET", SLICES, resourceVersion="x").code == 400


def test_oldest_rest_of_a_list_is_forgotten() -> None:
    pages = Pages()
    tokens = [pages.cut([{"number": number}, {}], 1, 1)[1] for number in range(101)]
    with pytest.raises(StatusError, match="too old"):
        pages.rest(tokens[0])
    assert pages.rest(tokens[1]) == ([{}], 1)
