"""The server as a whole: discovery, versions, faults, its log, going down and up."""

from __future__ import annotations

import json
import threading
from http.client import RemoteDisconnected
from pathlib import Path

import pytest

from sandbox.apiserver.bodies import JSON_PATCH, STRATEGIC, patched
from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.sandbox.apiserver.web import NODES, RESOURCES, SLICES, WebReply, ask, slice_of, watching


def test_discovery_shows_what_is_served(server: ApiServer) -> None:
    assert ask(server, "GET", "/version").body["minor"] == "36"
    assert ask(server, "GET", "/readyz").body == "ok"
    group = ask(server, "GET", "/apis/resource.k8s.io").body
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta2", "v1beta1"]
    assert ask(server, "GET", "/apis").body["groups"][0]["preferredVersion"]["version"] == "v1"
    resources = {each["name"]: each for each in ask(server, "GET", RESOURCES).body["resources"]}
    assert set(resources) == {
        "resourceslices",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "deviceclasses",
    }
    assert resources["resourceclaims"]["namespaced"]
    core = {each["name"] for each in ask(server, "GET", "/api/v1").body["resources"]}
    assert {"nodes", "nodes/status", "pods", "pods/binding", "events"} <= core


def test_older_server_serves_older_versions() -> None:
    with ApiServer(versions=("v1beta1",)) as server:
        assert ask(server, "GET", RESOURCES).code == 404
        assert ask(server, "GET", SLICES).code == 404
        path = SLICES.replace("/v1/", "/v1beta1/")
        old = slice_of(devices=[{"name": "d", "basic": {}}]) | {"apiVersion": "resource.k8s.io/v1beta1"}
        assert ask(server, "POST", path, old).code == 201
        assert ask(server, "POST", path, slice_of("t")).code == 400
        assert [each["name"] for each in server.store.get("resourceslices", "s")["spec"]["devices"]] == ["d"]


def test_server_without_dra_serves_nothing_of_it() -> None:
    with ApiServer(versions=()) as server:
        assert ask(server, "GET", "/apis").body["groups"] == []
        assert ask(server, "GET", "/apis/resource.k8s.io").code == 404
        assert ask(server, "GET", SLICES).code == 404
        assert ask(server, "GET", NODES).code == 200


def test_unknown_version_is_named() -> None:
    with pytest.raises(ValueError, match=r"'v2' is not a version of resource\.k8s\.io; use some of v1, v1alpha3"):
        ApiServer(versions=("v2",))


def test_taint_rules_are_in_v1beta2_until_1_36_and_in_v1_since() -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoExecute"}}}
    with ApiServer() as server:
        assert ask(server, "POST", f"{RESOURCES}/devicetaintrules", rule).code == 404
        path = f"{RESOURCES[:-2]}v1beta2/devicetaintrules"
        made = ask(server, "POST", path, rule)
        assert (made.code, made.body["apiVersion"]) == (201, "resource.k8s.io/v1beta2")
        assert made.body["spec"]["taint"]["timeAdded"]
        made.body["status"] = {"conditions": []}
        assert ask(server, "PUT", f"{path}/r/status", made.body).code == 200
    with ApiServer(minor=37) as server:
        assert ask(server, "POST", f"{RESOURCES}/devicetaintrules", rule).code == 201


def test_unknown_paths_are_not_found(server: ApiServer) -> None:
    for path in ("/nothing", "/apis/other/v1/things", f"{RESOURCES}/things", f"{SLICES}/s/status", f"{SLICES}/a/b/c"):
        assert ask(server, "GET", path).code == 404
    assert ask(server, "POST", f"{RESOURCES}/resourceclaims", {}).code == 405
    assert ask(server, "POST", f"{SLICES}/s", {}).code == 405


def test_features_that_are_off_drop_their_fields() -> None:
    devices = [{"name": "d", "taints": [{"key": "k", "effect": "NoSchedule"}]}]
    with ApiServer(GATES_OFF) as server:
        assert ask(server, "POST", SLICES, slice_of(devices=devices)).body["spec"]["devices"] == [{"name": "d"}]


def test_fault_answers_without_carrying_out(server: ApiServer) -> None:
    fault = server.faults.add("create", "status", 429, skip=1, count=1, retry_after=2)
    codes = [ask(server, "POST", SLICES, slice_of(name)).code for name in "abc"]
    assert codes == [201, 429, 201]
    assert fault.hits == 1
    assert [each["metadata"]["name"] for each in server.store.list("resourceslices")] == ["a", "c"]
    assert [(asked.code, asked.injected) for asked in server.requests] == [(201, False), (429, True), (201, False)]


def test_injected_answer_is_a_status(server: ApiServer) -> None:
    server.faults.add("list", status=403, resource="nodes", count=-1, retry_after=3, message="nodes is forbidden")
    assert ask(server, "GET", SLICES).code == 200
    reply = ask(server, "GET", NODES)
    assert (reply.code, reply.body["reason"], reply.body["message"]) == (403, "Forbidden", "nodes is forbidden")
    assert reply.headers["Retry-After"] == "3"
    server.faults.clear()
    assert ask(server, "GET", NODES).code == 200


def test_lost_response_is_carried_out(server: ApiServer) -> None:
    server.faults.add("create", "lost-response")
    with pytest.raises(RemoteDisconnected):
        ask(server, "POST", SLICES, slice_of())
    assert server.store.get("resourceslices", "s")
    assert [(asked.code, asked.injected) for asked in server.requests] == [(201, False)]


def test_closed_connection_is_not_carried_out(server: ApiServer) -> None:
    server.faults.add("create", "close")
    with pytest.raises(RemoteDisconnected):
        ask(server, "POST", SLICES, slice_of())
    assert server.store.list("resourceslices") == []


def test_race_acts_just_before(server: ApiServer) -> None:
    made = server.store.create("resourceslices", slice_of())
    server.faults.add("delete", "race", then=lambda: server.store.patch("resourceslices", "s", {"metadata": LABELS}))
    preconditions = {"resourceVersion": made["metadata"]["resourceVersion"]}
    assert ask(server, "DELETE", f"{SLICES}/s", {"preconditions": preconditions}).code == 409


LABELS = {"labels": {"a": "b"}}


def test_request_hangs_until_the_fault_is_lifted(server: ApiServer) -> None:
    server.faults.add("get", "hang")
    ended: list[str] = []

    def hanging() -> None:
        try:
            ask(server, "GET", f"{SLICES}/s")
        except RemoteDisconnected:
            ended.append("hung up")

    thread = threading.Thread(target=hanging)
    thread.start()
    assert server.requests.wait(lambda asked: asked)
    server.faults.clear()
    thread.join(60)
    assert ended == ["hung up"]


def test_unknown_fault_is_named(server: ApiServer) -> None:
    with pytest.raises(ValueError, match="fault 'explode' is unknown; use one of status, lost-response"):
        server.faults.add("get", "explode")


def test_log_shows_what_was_asked(server: ApiServer) -> None:
    ask(server, "POST", SLICES.replace("/v1/", "/v1beta2/"), slice_of() | {"apiVersion": "resource.k8s.io/v1beta2"})
    ask(server, "GET", SLICES, limit="5")
    first, second = server.requests
    assert (first.verb, first.resource, first.version, first.code) == ("create", "resourceslices", "v1beta2", 201)
    assert first.body["metadata"]["name"] == "s"
    assert second.query == {"limit": "5"}
    assert [asked.verb for asked in server.requests.writes()] == ["create"]
    assert len(server.requests.of("list", "resourceslices")) == 1
    server.requests.clear()
    assert len(server.requests) == 0


def test_server_that_is_down_refuses_and_keeps_its_objects(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of())
    url = server.url
    with watching(server, SLICES) as stream:
        stream.first(1)
        server.down()
        assert stream.ended()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "GET", SLICES)
    server.store.create("resourceslices", slice_of("t"))
    server.up()
    assert server.url == url
    assert len(ask(server, "GET", SLICES).body["items"]) == 2


def test_fault_may_take_the_server_down(server: ApiServer) -> None:
    server.faults.add("list", "race", then=server.down)
    with pytest.raises(OSError):  # reset or closed, as it comes
        ask(server, "GET", SLICES)
    server.up()
    assert ask(server, "GET", SLICES).code == 200


def test_many_clients_are_answered_at_once(server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "n", "labels": {"count": "0"}}})
    replies: list[WebReply] = []

    def work(number: int) -> None:
        replies.append(ask(server, "POST", SLICES, slice_of(f"s{number}")))
        replies.append(ask(server, "GET", f"{NODES}/n"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(reply.code for reply in replies) == [200] * 50 + [201] * 50
    versions = {each["metadata"]["resourceVersion"] for each in server.store.list("resourceslices")}
    assert len(versions) == 50


def test_kubeconfig_names_the_server(server: ApiServer, tmp_path: Path) -> None:
    written = json.loads(server.kubeconfig(tmp_path / "config").read_text())
    assert written["clusters"][0]["cluster"]["server"] == server.url
    assert written["current-context"] == "sandbox"


def test_store_can_be_waited_for(server: ApiServer) -> None:
    before = server.store.version
    assert server.store.wait(before, 0.0) == before
    timer = threading.Thread(target=lambda: server.store.create("nodes", {"metadata": {"name": "n"}}))
    timer.start()
    assert server.store.wait(before, 10.0) == before + 1
    timer.join()


def test_json_patch_is_applied() -> None:
    before = {"a": [1, 2], "b~/c": {"d": 1}}
    patch = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "remove", "path": "/a/0"},
        {"op": "replace", "path": "/b~0~1c/d", "value": 2},
        {"op": "add", "path": "/e", "value": 5},
    ]
    assert patched(before, patch, JSON_PATCH) == {"a": [2, 3], "b~/c": {"d": 2}, "e": 5}
    assert before == {"a": [1, 2], "b~/c": {"d": 1}}
    with pytest.raises(StatusError) as caught:
        patched(before, [{"op": "remove", "path": "/nothing"}], JSON_PATCH)
    assert caught.value.code == 422


def test_strategic_patch_merges_conditions_by_type() -> None:
    before = {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "B", "status": "False"}, {"type": "C", "status": "True"}]}}
    after = patched(before, patch, STRATEGIC)["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in after] == [("A", "True"), ("B", "False"), ("C", "True")]


def test_apply_is_refused_rather_than_guessed_at() -> None:
    with pytest.raises(StatusError, match="Unsupported Media Type") as caught:
        patched({}, {}, "application/apply-patch+yaml")
    assert caught.value.code == 415
