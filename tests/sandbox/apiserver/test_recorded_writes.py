"""Writes of a slice controller that a real API server judged: the same answers, and the same objects stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.apiserver.server import GATES_OFF, ApiServer
from scheduling.api.validation.storing import as_stored
from tests.making.recorded_cases import files_in
from tests.sandbox.apiserver.web import SLICES, ask

FOLDER = Path(__file__).parents[2] / "vectors" / "slices"
UID = "11111111-2222-4333-8444-555555555555"
NOW = "2001-02-03T04:05:06Z"


def creations() -> Iterator[Any]:
    """Each recorded creation with the slice it made, where it can be seen at the end of its step."""
    for path in files_in(FOLDER, "*.json"):
        for scenario in json.loads(path.read_text()):
            for number, step in enumerate(scenario["steps"]):
                yield from of_step(scenario, number, step["expect"])


def of_step(scenario: Any, number: int, expected: Any) -> Iterator[Any]:
    writes = expected.get("writes", [])
    shown = {state["slice"]: state for state in expected["state"]}
    touched = [write.get("slice") for write in writes]
    for index, write in enumerate(writes):
        # Many devices are replaced by a remark.
        plain = write["verb"] == "create" and isinstance(write["body"]["spec"].get("devices", []), list)
        if plain and not write.get("injected") and write.get("apiVersion", "v1") == "v1":
            once = touched.count(write.get("slice")) == 1
            state = shown.get(write.get("slice")) if once else None
            yield pytest.param(scenario["server"], write, state, id=f"{scenario['id']}-{number}-{index}")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ApiServer]]:
    made = {
        "default": ApiServer(clock=lambda: 981173106.0).start(),
        "gates-off": ApiServer(GATES_OFF, clock=lambda: 981173106.0).start(),
    }
    yield made
    for each in made.values():
        each.stop()


@pytest.mark.parametrize(("kind", "write", "state"), list(creations()))
def test_creation_is_answered_and_stored_as_by_the_api_server(
    kind: str, write: Any, state: Any, servers: dict[str, ApiServer]
) -> None:
    reply = ask(servers[kind], "POST", SLICES, whole(write["body"]))
    assert reply.code == write["code"], reply
    if reply.code == 201 and state is not None:
        assert essence(reply.body) == essence(whole(state))
    if reply.code == 422:
        causes = {(cause["field"], cause["reason"]) for cause in reply.body["details"]["causes"]}
        assert causes == {(cause["field"], cause["reason"]) for cause in write["causes"]}


def whole(flat: Any) -> Any:
    """The object, which the vectors write without its frame."""
    metadata = {name: flat[name] for name in ("name", "generateName", "ownerReferences") if name in flat}
    text = json.dumps({"metadata": metadata, "spec": flat["spec"]}).replace('"<now>"', f'"{NOW}"')
    named = json.loads(text) | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    for owner in metadata.get("ownerReferences", []):
        named["metadata"]["ownerReferences"] = [owner | {"uid": UID}]
    return named


def essence(resource: Any) -> Any:
    """What says something, as the server writes it: quantities by value."""
    return as_stored(resource)["spec"]
