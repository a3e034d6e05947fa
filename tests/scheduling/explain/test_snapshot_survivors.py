"""Every text field of the API is marked, and the marks that come through a snapshot are read.

The two lists in ``survivors/`` were judged line by line. A field that the API gains, or a rule of ours that keeps more,
changes them: then somebody has to decide again.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ostler.explain.snapshot import anonymous, as_json, reduced
from scheduling.explain.state import (
    FACTS,
    Kind,
    State,
)

LISTS = Path(__file__).with_name("survivors")
MODELS = {
    Kind.POD: "V1Pod",
    Kind.NODE: "V1Node",
    Kind.SLICE: "V1ResourceSlice",
    Kind.CLAIM: "ResourceV1ResourceClaim",
    Kind.CLASS: "V1DeviceClass",
    Kind.TEMPLATE: "V1ResourceClaimTemplate",
    Kind.TAINT_RULE: "V1DeviceTaintRule",
}
NUMBERS = {"int": 7, "float": 1.5, "bool": True}


@cache
def model(name: str) -> Any:
    """A class of the client library, whose import is too slow for a collection."""
    return getattr(importlib.import_module("kubernetes.client.models"), name)


def marked(form: str, path: str) -> Any:
    """A value of a type as the client library names it; texts are their own path."""
    if form in ("str", "datetime"):
        return f"@{path}@"
    if form in NUMBERS:
        return NUMBERS[form]
    if form == "object":
        return {f"@{path} (keys)@": f"@{path}@"}
    if inner := re.fullmatch(r"list\[(.*)\]", form, re.IGNORECASE):
        return [marked(inner[1], path)]
    if inner := re.fullmatch(r"dict[\[(]str, (.*)[\])]", form, re.IGNORECASE):
        return {f"@{path} (keys)@": marked(inner[1], path)}
    names = {model(form).attribute_map[name]: kind for name, kind in model(form).openapi_types.items()}
    return {name: marked(kind, f"{path}.{name}") for name, kind in names.items()}


def whole(kind: Kind) -> State:
    """One object of a kind in which every field is set."""
    body = marked(MODELS[kind], kind.value)
    body["kind"] = kind.value
    for owner in body["metadata"]["ownerReferences"]:
        owner["kind"] = "Pod"
    if kind is Kind.NODE:
        body["status"]["conditions"][0]["type"] = "Ready"
        body["status"]["allocatable"] = {"example.com/gpu": "@Node.status.allocatable of extended resources@"}
    return State(**{FACTS[kind].field: (body,)})  # type: ignore[arg-type]  # only fields of objects


def survivors(*, anonymised: bool) -> list[str]:
    made = (anonymous(whole(kind), nodes=True).state if anonymised else reduced(whole(kind)) for kind in MODELS)
    return sorted({mark for state in made for mark in re.findall("@([^@]+)@", as_json(state))})


@pytest.mark.parametrize("anonymised", [False, True])
def test_only_fields_that_were_judged_survive(anonymised: bool) -> None:
    judged = (LISTS / ("anonymised.txt" if anonymised else "plain.txt")).read_text().splitlines()
    assert survivors(anonymised=anonymised) == judged


def test_no_name_and_no_free_text_survives_a_change_of_names() -> None:
    ends = ("metadata.name", "namespace", "uid", "nodeName", "pool.name", "message", ".metadata.labels", "parameters")
    kept = {"DeviceClass.metadata.name"}
    assert [field for field in survivors(anonymised=True) if field.endswith(ends) and field not in kept] == []
