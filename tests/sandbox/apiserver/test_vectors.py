"""The verdicts of a real API server, through HTTP: accepted or not, which fields for which reasons, what is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.apiserver.server import ApiServer
from scheduling.api.validation.shapes import Gates
from tests.making.recorded_cases import cases_in, files_in
from tests.sandbox.apiserver.web import WebReply, ask

FOLDER = Path(__file__).parents[2] / "vectors" / "validation"
GATES = {"default": Gates(), "list-attributes": Gates(list_attributes=True)}
PLURALS = {"ResourceSlice": "resourceslices", "ResourceClaim": "resourceclaims", "DeviceClass": "deviceclasses"}
NOW = "2001-02-03T04:05:06Z"
SET_BY_SERVER = ("uid", "creationTimestamp", "resourceVersion", "generation")


def vectors() -> list[Any]:
    found = (vector for path in files_in(FOLDER, "*.jsonl") for vector in cases_in(path))
    return [pytest.param(vector, id=vector["id"]) for vector in found]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ApiServer]]:
    """One for each set of gates: starting some hundreds costs more than the requests."""
    made = {name: ApiServer(gates, clock=lambda: 981173106.0).start() for name, gates in GATES.items()}
    yield made
    for each in made.values():
        each.stop()


@pytest.mark.parametrize("vector", vectors())
def test_verdict_is_that_of_the_api_server(vector: Any, servers: dict[str, ApiServer]) -> None:
    reply = sent(servers[vector["gates"]], vector)
    if vector["accepted"]:
        assert reply.code in (200, 201), reply
        assert comparable(reply.body, vector) == comparable(vector.get("stored", vector["object"]), vector)
        return
    assert reply.code == (vector["code"] if vector["accepted"] is False else 422)
    assert reply.body["kind"] == "Status"
    assert reply.body["message"]
    if vector["accepted"] is False:
        assert reply.body["reason"] == vector["reason"]
        causes = {(cause["field"], cause["reason"]) for cause in reply.body.get("details", {}).get("causes", [])}
        assert causes == {(cause["field"], cause["reason"]) for cause in vector.get("causes", [])}


def sent(server: ApiServer, vector: Any) -> WebReply:
    """The request of the vector; an object that is to be replaced is there before, and gone after."""
    place = "/namespaces/default" if vector["kind"] == "ResourceClaim" else ""
    path = f"/apis/resource.k8s.io/v1{place}/{PLURALS[vector['kind']]}"
    if vector["op"] == "create":
        return ask(server, "POST", path, vector["object"], dryRun="All")
    old = ask(server, "POST", path, vector["old"])
    assert old.code == 201, old
    name = old.body["metadata"]["name"]
    try:
        return ask(server, "PUT", f"{path}/{name}", vector["object"], dryRun="All")
    finally:
        assert ask(server, "DELETE", f"{path}/{name}").code == 200


def comparable(resource: Any, vector: Any) -> Any:
    """Without what the vectors leave out: what the server sets, empty parts at the top, a generated name."""
    text = json.dumps(resource).replace('"<now>"', f'"{NOW}"')
    top = {name: part for name, part in json.loads(text).items() if part}
    top["metadata"] = {name: part for name, part in top["metadata"].items() if name not in SET_BY_SERVER}
    if vector["kind"] == "ResourceClaim":
        top["metadata"].setdefault("namespace", "default")
    if "generatedNameLength" in vector:
        assert len(top["metadata"].pop("name", "x" * vector["generatedNameLength"])) == vector["generatedNameLength"]
    return top
