"""Every verdict of a real API server: accepted or not, which fields for which reasons, what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduling.api.validation.cause import TYPE_INVALID
from scheduling.api.validation.objects import VALIDATORS
from scheduling.api.validation.shapes import Gates
from scheduling.api.validation.storing import as_stored
from tests.making.recorded_cases import cases_in, files_in

FOLDER = Path(__file__).parents[3] / "vectors" / "validation"
GATES = {"default": Gates(), "list-attributes": Gates(list_attributes=True)}
NOW = "2001-02-03T04:05:06Z"


def vectors() -> list[Any]:
    found = (vector for path in files_in(FOLDER, "*.jsonl") for vector in cases_in(path))
    return [pytest.param(vector, id=vector["id"]) for vector in found]


@pytest.mark.parametrize("vector", vectors())
def test_verdict_is_that_of_the_api_server(vector: Any) -> None:
    judge = VALIDATORS[vector["kind"]]
    causes = judge(vector["object"], vector.get("old"), GATES[vector["gates"]])
    if vector["accepted"] is None:
        assert causes, "what stops the server must be refused"
    elif vector["accepted"]:
        assert causes == []
    elif vector["code"] == 422:
        found = {(cause.field, cause.reason) for cause in causes}
        assert found == {(cause["field"], cause["reason"]) for cause in vector["causes"]}
    elif vector["code"] == 400:
        assert [cause.reason for cause in causes] == [TYPE_INVALID]
    assert all(cause.message for cause in causes)


@pytest.mark.parametrize("vector", [entry for entry in vectors() if entry.values[0]["accepted"]])
def test_stored_object_is_that_of_the_api_server(vector: Any) -> None:
    expected = vector.get("stored", vector["object"])
    found = as_stored(vector["object"], GATES[vector["gates"]], old=vector.get("old"), now=NOW)
    assert comparable(found, vector) == comparable(expected, vector)


def comparable(resource: Any, vector: Any) -> Any:
    """Without what the vectors leave out: empty parts at the top, a generated name."""
    text = json.dumps(resource).replace('"<now>"', f'"{NOW}"')
    top = {name: part for name, part in json.loads(text).items() if part}
    if "generatedNameLength" in vector:
        top["metadata"].pop("name", None)
    return top
