"""Objects that nobody means well with: any value anywhere, too deep, too long, too many, in any version."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.api.validation.cause import TYPE_INVALID
from scheduling.api.validation.decoding import Undecodable
from scheduling.api.validation.objects import VALIDATORS, validate_claim_status, validate_class, validate_slice
from scheduling.api.validation.shapes import Gates
from scheduling.api.validation.storing import as_stored, status_as_stored
from scheduling.api.versions import VersionError, from_v1, to_v1, with_defaults
from tests.making.recorded_cases import cases_in, files_in

FOLDER = Path(__file__).parents[3] / "vectors" / "validation"
OBJECTS = [
    entry["object"] for path in files_in(FOLDER, "*.jsonl") for entry in cases_in(path) if len(json.dumps(entry)) < 5000
]


def nested(depth: int) -> Any:
    inner: Any = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def repeated(levels: int) -> Any:
    """A value of a few lists that written out has ten to the power of `levels` parts, as from YAML's aliases."""
    inner: Any = ["x"] * 10
    for _ in range(levels - 1):
        inner = [inner] * 10
    return inner


VALUES = [
    *(None, True, False, 0, -1, 2**63, 10**4400, 1.5, float("inf"), float("nan")),
    *("", "a", "\ud800", "aé-", "a/b/c", "1.2.3-" + "1" * 5000, "0" * 5000 + "x", "1e9999", "(" * 5000),
    *([], [[]], {}, {"": ""}, ["x"] * 2000, nested(150), nested(900), nested(3000), repeated(9)),
]
choices = st.integers(0, len(VALUES) - 1)
"""Drawn instead of the values themselves: a failure prints what was drawn, and `repeated` has no end in print."""
gates = st.builds(Gates, **dict.fromkeys(Gates.__dataclass_fields__, st.booleans()))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    found: list[tuple[Any, Any]] = []
    rest = [value]
    while rest:
        holder = rest.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys]
        rest += [holder[key] for key in keys]
    return found


@given(data=st.data(), original=st.sampled_from(OBJECTS), which=gates)
def test_any_value_anywhere_gives_causes_or_the_one_error(data: Any, original: Any, which: Gates) -> None:
    resource = copy.deepcopy(original)
    changes = data.draw(st.lists(st.tuples(st.integers(0, 10**6), choices), min_size=1, max_size=3))
    at = places(resource)
    for index, choice in changes:
        holder, key = at[index % len(at)]
        holder[key] = VALUES[choice]
    started = time.thread_time()
    judge = VALIDATORS[original["kind"]]
    causes = [*judge(resource, None, which), *judge(resource, original, which), *judge(original, resource, which)]
    if original["kind"] == "ResourceClaim":
        causes += [*validate_claim_status(resource, original, which), *validate_claim_status(original, resource, which)]
    assert all(cause.message and len(cause.message) < 1000 for cause in causes)
    changing: tuple[Callable[[], object], ...] = (
        lambda: as_stored(resource, which),
        lambda: status_as_stored(resource, original, which),
        lambda: to_v1(resource),
        lambda: from_v1(resource, "v1beta1"),
        lambda: with_defaults(resource),
    )
    for change in changing:
        try:
            change()
        except (Undecodable, VersionError) as error:
            assert len(str(error)) < 1000  # noqa: PT017 - what is raised depends on what was drawn
    # This thread's own time, since other processes may have the cores.
    assert time.thread_time() - started < 2


@pytest.mark.parametrize("kind", [None, 5, [], "Pod", "ResourceSliceList"])
def test_unknown_kind_is_not_stored(kind: Any) -> None:
    with pytest.raises(Undecodable, match=r"kind: must be one of ResourceSlice, ResourceClaim, .*, is "):
        as_stored({"kind": kind})
    with pytest.raises(Undecodable, match="kind: must be one of"):
        as_stored(kind)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"apiVersion": "resource.k8s.io/v1beta1"}, "apiVersion: must be resource.k8s.io/v1, to which other versions"),
        ({"apiVersion": "v1"}, "apiVersion: must be resource.k8s.io/v1"),
        ({"kind": "ResourceClaim"}, "kind: must be ResourceSlice, is 'ResourceClaim'"),
        ({"kind": ["ResourceSlice"]}, "kind: must be ResourceSlice, is ['ResourceSlice']"),
    ],
)
def test_object_of_another_kind_or_version_is_refused(named: Any, text: str) -> None:
    [cause] = validate_slice(named)
    assert cause.reason == TYPE_INVALID
    assert str(cause).startswith(text)


def test_versions_of_the_same_shape_are_judged_as_v1() -> None:
    served = {"ResourceSlice": ("v1", "v1beta2"), "DeviceTaintRule": ("v1", "v1beta2", "v1alpha3")}
    for kind, versions in served.items():
        for version in versions:
            causes = VALIDATORS[kind]({"apiVersion": f"resource.k8s.io/{version}", "kind": kind})
            assert TYPE_INVALID not in [cause.reason for cause in causes]
    [cause] = VALIDATORS["ResourceSlice"]({"apiVersion": "resource.k8s.io/v1alpha3"})
    assert cause.field == "apiVersion"


def parameters_of(value: Any) -> Any:
    config = [{"opaque": {"driver": "d", "parameters": value}}]
    return {"metadata": {"name": "c"}, "spec": {"config": config}}


def test_raw_json_has_a_bound_on_its_depth() -> None:
    assert validate_class(parameters_of(nested(200))) == []
    [cause] = validate_class(parameters_of(nested(201)))
    assert str(cause).startswith("spec.config[0].opaque.parameters: must be plain JSON: no dates")
    assert "at most 200 levels deep" in str(cause)


def test_raw_json_has_a_bound_on_what_aliases_repeat() -> None:
    [cause] = validate_class(parameters_of({"a": repeated(9)}))
    assert cause.reason == TYPE_INVALID
    [cause] = validate_class(parameters_of({"a": repeated(4)}))
    assert cause.reason == "FieldValueTooLong"


def test_half_a_surrogate_pair_is_read_as_the_api_server_does() -> None:
    class_ = {"kind": "DeviceClass", "metadata": {"name": "c", "annotations": {"a": "\ud800x"}}}
    assert as_stored(class_)["metadata"]["annotations"] == {"a": "\ufffdx"}
    named = validate_class({"metadata": {"generateName": "a\udfff-"}})
    assert [cause.field for cause in named] == ["metadata.name"]
    labels = {"k\ud800": "v", "\U0001f600": "v"}
    assert [cause.field for cause in validate_class({"metadata": {"name": "c", "labels": labels}})] == [
        "metadata.labels",
        "metadata.labels",
    ]


def test_the_end_of_generate_name_is_judged_by_bytes() -> None:
    def faults(prefix: str) -> list[str]:
        slice_ = {"metadata": {"generateName": prefix}, "spec": {}}
        return [cause.field for cause in validate_slice(slice_) if cause.field.startswith("metadata")]

    assert faults("a-") == faults("ab--") == []
    assert faults("aé-") == faults("é-") == ["metadata.generateName", "metadata.name"]
    assert faults("-") == ["metadata.generateName", "metadata.name"]


def test_many_consumers_are_compared_in_no_time() -> None:
    users = [{"resource": "pods", "name": f"p{at}", "uid": f"u{at}"} for at in range(256)]
    metadata = {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    allocation: dict[str, Any] = {"devices": {}}
    old = {"metadata": metadata, "status": {"allocation": allocation, "reservedFor": users * 40}}
    same = {"metadata": metadata, "status": {"allocation": allocation, "reservedFor": [{"apiGroup": "", **users[0]}]}}
    assert validate_claim_status(same, old) == []
    other = {**users[0], "uid": "other"}
    new = {"metadata": metadata, "status": {"allocation": allocation, "reservedFor": [users[1], other]}}
    [cause] = validate_claim_status(new, old)
    assert str(cause) == "status.reservedFor: must get no new entries once the claim is being deleted"
