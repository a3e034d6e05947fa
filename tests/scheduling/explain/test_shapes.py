"""Every field with a wrong type is found and named, wherever it is, although whole objects are glanced at first."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from kube.bodies import Json, JsonObject
from ostler.explain.shapes import misfits
from ostler.explain.yaml_objects import FieldPath
from scheduling.explain.state import Kind

SLICE: JsonObject = {
    "metadata": {"name": "s", "labels": {"a": "b"}},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
        },
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"model": {"string": "H100"}, "minor": {"int": 0}, "links": {"ints": [1, 2]}},
                "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"validValues": ["1Gi"]}}},
                "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}],
                "taints": [{"key": "k", "effect": "NoSchedule"}],
                "allowMultipleAllocations": True,
            }
        ],
    },
}
NEEDED: tuple[FieldPath, ...] = (
    ("metadata",),
    ("spec",),
    ("spec", "driver"),
    ("spec", "pool", "name"),
    ("spec", "nodeSelector", "nodeSelectorTerms", 0, "matchExpressions", 0, "operator"),
    ("spec", "devices", 0, "name"),
    ("spec", "devices", 0, "consumesCounters", 0, "counterSet"),
)


def places(value: Json, path: FieldPath = ()) -> Iterator[FieldPath]:
    """The path of every value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def with_value(path: FieldPath, value: Json) -> JsonObject:
    """The slice with another value at a path."""
    made = copy.deepcopy(SLICE)
    holder: Json = made
    for step in path[:-1]:
        holder = holder[step]  # type: ignore[index]  # the path leads there
    holder[path[-1]] = value  # type: ignore[index]
    return made


def test_object_that_fits_has_no_misfit() -> None:
    assert not [*misfits(Kind.SLICE, copy.deepcopy(SLICE))]
    assert not [*misfits(Kind.SLICE, {**SLICE, "unknown": 1, "status": {"also": []}})]


@pytest.mark.parametrize("path", [*places(SLICE)], ids=str)
def test_wrong_type_anywhere_is_named_with_its_path(path: FieldPath) -> None:
    """Neither a list of lists nor null in a list is any field's value."""
    [found] = misfits(Kind.SLICE, with_value(path, [[None]]))
    assert found.path[: len(path)] == path


@pytest.mark.parametrize("path", NEEDED, ids=str)
def test_field_that_is_needed_is_missed(path: FieldPath) -> None:
    [found] = misfits(Kind.SLICE, with_value(path, None))
    assert (found.path, found.problem) == (path, "is missing")


def test_quantity_that_is_a_number_becomes_a_text() -> None:
    path = ("spec", "devices", 0, "capacity", "memory", "value")
    body = with_value(path, 80)
    assert not [*misfits(Kind.SLICE, body)]
    assert body == with_value(path, "80")
