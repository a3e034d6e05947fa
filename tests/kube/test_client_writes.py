"""Objects created, replaced and deleted: what is asked, and what is never tried again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kube.bodies import JsonObject
from kube.client import Client
from kube.errors import Unreachable, WriteConflict
from tests.kube.conftest import client_of
from tests.kube.server import CannedAnswer, StubApiServer, refused


def test_an_object_is_created_by_a_dry_run(server: StubApiServer) -> None:
    client_of(server).create("/slices", {"spec": {}}, {"dryRun": "All"})
    client_of(server).create("/slices", {"spec": {}})
    assert [(asked.method, asked.path) for asked in server.asked] == [
        ("POST", "/slices?dryRun=All"),
        ("POST", "/slices"),
    ]


def test_an_object_is_replaced(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer.of({"metadata": {"resourceVersion": "8"}}))
    body: JsonObject = {"metadata": {"name": "a", "resourceVersion": "7"}}
    assert client_of(server).replace("/slices/a", body) == {"metadata": {"resourceVersion": "8"}}
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("PUT", "/slices/a", body)


def test_a_replacement_of_what_changed_meanwhile_is_a_conflict_and_is_not_tried_again(server: StubApiServer) -> None:
    server.answers.append(refused(409, "Conflict", "the object has been modified"))
    with pytest.raises(WriteConflict) as caught:
        client_of(server).replace("/slices/a", {})
    assert not caught.value.already_exists
    assert len(server.asked) == 1


def test_an_object_is_deleted_only_as_it_was_seen(server: StubApiServer) -> None:
    client_of(server).delete("/slices/a", uid="u", resource_version="7")
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("DELETE", "/slices/a")
    preconditions = {"uid": "u", "resourceVersion": "7"}
    assert asked.body == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}


def test_an_object_is_deleted_as_it_is_where_nothing_is_required(server: StubApiServer) -> None:
    client_of(server).delete("/slices/a")
    assert server.asked[0].body == {}
    client_of(server).delete("/slices/a", uid="u")
    assert server.asked[1].body["preconditions"] == {"uid": "u"}


@pytest.mark.parametrize("ask", [lambda c: c.replace("/x", {}), lambda c: c.delete("/x", uid="u")])
def test_a_replacement_or_deletion_that_may_have_been_carried_out_is_not_tried_again(
    server: StubApiServer, ask: Callable[[Client], object]
) -> None:
    server.answers.append(CannedAnswer(hang_up=True))
    with pytest.raises(Unreachable) as caught:
        ask(client_of(server))
    assert caught.value.sent
    assert len(server.asked) == 1
