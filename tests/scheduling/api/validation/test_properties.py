"""What holds for every object: nothing is changed, nothing crashes, what is stored stays as it is."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.api.labels import label_faults, label_value_faults, subdomain_faults
from scheduling.api.validation.objects import VALIDATORS, validate_claim, validate_slice
from scheduling.api.validation.storing import as_stored
from tests.making.recorded_cases import cases_in, files_in

FOLDER = Path(__file__).parents[3] / "vectors" / "validation"
ACCEPTED = [
    entry["object"]
    for path in files_in(FOLDER, "*.jsonl")
    for entry in cases_in(path)
    if entry["accepted"] and entry["gates"] == "default" and len(json.dumps(entry)) < 5000
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def has_places(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


@given(data=st.data())
def test_any_json_in_any_place_is_judged(data: Any) -> None:
    resource = copy.deepcopy(data.draw(st.sampled_from(ACCEPTED)))
    holder: Any = resource
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from([each for each in keys if each not in ("kind", "apiVersion")] or keys))
        inner = holder[key]
        if not has_places(inner) or data.draw(st.booleans()):
            holder[key] = data.draw(anything)
            break
        holder = inner
    before = copy.deepcopy(resource)
    causes = VALIDATORS[resource["kind"]](resource)
    assert all(cause.message for cause in causes)
    assert resource == before


@pytest.mark.parametrize("resource", ACCEPTED, ids=lambda resource: resource["metadata"].get("name", "generated"))
def test_stored_object_is_accepted_again_and_stored_as_it_is(resource: Any) -> None:
    before = copy.deepcopy(resource)
    stored = as_stored(resource, now="2026-01-01T00:00:00Z")
    assert as_stored(stored) == stored
    assert VALIDATORS[resource["kind"]](stored) == []
    if "name" in stored["metadata"]:
        assert VALIDATORS[resource["kind"]](stored, stored) == []
    assert resource == before


@given(st.text(alphabet="aA0-._/ \u00e9\n", max_size=70))
def test_each_label_is_a_subdomain_and_a_label_value(text: str) -> None:
    if not label_faults(text):
        assert not subdomain_faults(text)
        assert not label_value_faults(text)


def test_huge_objects_are_refused_by_their_size_alone() -> None:
    devices = [{"name": "X", "attributes": {str(at): {} for at in range(40)}}] * 10_000
    pool = {"name": "p", "resourceSliceCount": 1}
    slice_ = {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, "allNodes": True, "devices": devices}}
    assert [cause.field for cause in validate_slice(slice_)] == ["spec.devices"]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "R"}] * 10_000}}}
    assert [cause.field for cause in validate_claim(claim)] == ["spec.devices.requests"]
