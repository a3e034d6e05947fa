"""Every field with a wrong type is found and named, wherever it is, although whole objects are glanced at first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kube.bodies import Json, JsonObject
from ostler.explain.shapes import SHAPES, MappingOf, Misfit, Required, Shape, misfits
from ostler.explain.yaml_objects import FieldPath
from scheduling.explain.state import Kind

META: JsonObject = {
    "name": "n",
    "namespace": "team",
    "uid": "u",
    "generateName": "n-",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
}
REQUIREMENTS: Json = [{"key": "k", "operator": "In", "values": ["v"]}]
NODE_SELECTOR: JsonObject = {
    "nodeSelectorTerms": [{"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}],
}
NODES: JsonObject = {"nodeName": "n", "nodeSelector": NODE_SELECTOR, "allNodes": True}
TAINT: JsonObject = {"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
TOLERATIONS: Json = [{"key": "k", "value": "v", "effect": "NoExecute", "operator": "Equal", "tolerationSeconds": 60}]
CONDITIONS: Json = [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}]
BINDING: JsonObject = {"bindingConditions": ["c"], "bindingFailureConditions": ["f"]}
COUNTERS: JsonObject = {"m": {"value": "1"}}
SELECTORS: Json = [{"cel": {"expression": "true"}}]
REQUEST: JsonObject = {
    "name": "r",
    "deviceClassName": "c",
    "selectors": SELECTORS,
    "allocationMode": "ExactCount",
    "count": 1,
    "tolerations": TOLERATIONS,
    "capacity": {"requests": {"memory": "1Gi"}},
}
CLAIM_SPEC: JsonObject = {
    "devices": {
        "requests": [{"name": "r", "exactly": {**REQUEST, "adminAccess": True}, "firstAvailable": [REQUEST]}],
        "constraints": [{"requests": ["r"], "matchAttribute": "a/b", "distinctAttribute": "a/b"}],
        "config": [{"requests": ["r"], "opaque": {"driver": "gpu.example.com"}}],
    }
}
PLACE: JsonObject = {"driver": "gpu.example.com", "pool": "p", "device": "gpu-0"}
RESOURCES: JsonObject = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
SAMPLES: Mapping[Kind, JsonObject] = {
    Kind.SLICE: {
        "metadata": META,
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            **NODES,
            "perDeviceNodeSelection": True,
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "one": {"int": 0, "bool": True, "string": "H100", "version": "1.0.0"},
                        "many": {"ints": [1, 2], "bools": [True], "strings": ["s"], "versions": ["1.0.0"]},
                    },
                    "capacity": {
                        "memory": {
                            "value": "80Gi",
                            "requestPolicy": {
                                "default": "1Gi",
                                "validValues": ["1Gi"],
                                "validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"},
                            },
                        }
                    },
                    "consumesCounters": [{"counterSet": "c", "counters": COUNTERS, "compatibilityGroups": ["g"]}],
                    **NODES,
                    "taints": [TAINT],
                    "bindsToNode": True,
                    **BINDING,
                    "allowMultipleAllocations": True,
                }
            ],
            "sharedCounters": [{"name": "c", "counters": COUNTERS}],
        },
    },
    Kind.CLAIM: {
        "metadata": META,
        "spec": CLAIM_SPEC,
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "r",
                            **PLACE,
                            "adminAccess": True,
                            "tolerations": TOLERATIONS,
                            "shareID": "s",
                            "consumedCapacity": {"memory": "1Gi"},
                            **BINDING,
                        }
                    ]
                },
                "nodeSelector": NODE_SELECTOR,
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u", "apiGroup": "g"}],
            "devices": [{**PLACE, "shareID": "s", "conditions": CONDITIONS}],
        },
    },
    Kind.TEMPLATE: {"metadata": META, "spec": {"spec": CLAIM_SPEC}},
    Kind.CLASS: {
        "metadata": META,
        "spec": {
            "selectors": SELECTORS,
            "config": [{"opaque": {"driver": "gpu.example.com"}}],
            "extendedResourceName": "example.com/gpu",
        },
    },
    Kind.TAINT_RULE: {"metadata": META, "spec": {"deviceSelector": PLACE, "taint": TAINT}},
    Kind.NODE: {
        "metadata": META,
        "spec": {"taints": [TAINT], "unschedulable": True},
        "status": {"conditions": CONDITIONS, "allocatable": {"cpu": "1"}},
    },
    Kind.POD: {
        "metadata": META,
        "spec": {
            "nodeName": "n",
            "nodeSelector": {"a": "b"},
            "schedulerName": "s",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODE_SELECTOR}},
            "tolerations": TOLERATIONS,
            "containers": [{"name": "c", "resources": RESOURCES}],
            "initContainers": [{"name": "i", "resources": RESOURCES}],
            "resourceClaims": [{"name": "r", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "phase": "Pending",
            "conditions": CONDITIONS,
            "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "c"},
        },
    },
}
"""One object of each kind, with every field that the kind's shape has."""


def needed_at(*path: str | int, keys: str) -> list[FieldPath]:
    return [(*path, key) for key in keys.split()]


def needed_in_selector(*path: str | int) -> list[FieldPath]:
    terms = (*path, "nodeSelectorTerms", 0)
    return [
        needed
        for key in ("matchExpressions", "matchFields")
        for needed in needed_at(*terms, key, 0, keys="key operator")
    ]


NEEDED: Mapping[Kind, list[FieldPath]] = {
    Kind.SLICE: [
        *needed_at(keys="metadata spec"),
        *needed_at("spec", keys="driver pool"),
        *needed_at("spec", "pool", keys="name"),
        *needed_in_selector("spec", "nodeSelector"),
        *needed_at("spec", "devices", 0, keys="name"),
        *needed_at("spec", "devices", 0, "consumesCounters", 0, keys="counterSet"),
        *needed_in_selector("spec", "devices", 0, "nodeSelector"),
        *needed_at("spec", "sharedCounters", 0, keys="name"),
    ],
    Kind.CLAIM: [
        *needed_at(keys="metadata spec"),
        *needed_at("spec", "devices", "requests", 0, keys="name"),
        *needed_at("status", "allocation", "devices", "results", 0, keys="request driver pool device"),
        *needed_in_selector("status", "allocation", "nodeSelector"),
    ],
    Kind.TEMPLATE: [
        *needed_at(keys="metadata spec"),
        *needed_at("spec", keys="spec"),
        *needed_at("spec", "spec", "devices", "requests", 0, keys="name"),
    ],
    Kind.CLASS: needed_at(keys="metadata"),
    Kind.TAINT_RULE: [*needed_at(keys="metadata spec"), *needed_at("spec", keys="taint")],
    Kind.NODE: needed_at(keys="metadata"),
    Kind.POD: [
        *needed_at(keys="metadata spec"),
        *needed_in_selector("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
        *needed_at("spec", "containers", 0, keys="name"),
        *needed_at("spec", "initContainers", 0, keys="name"),
        *needed_at("spec", "resourceClaims", 0, keys="name"),
        *needed_at("status", "resourceClaimStatuses", 0, keys="name"),
    ],
}
QUANTITIES: tuple[tuple[Kind, FieldPath], ...] = (
    (Kind.SLICE, ("spec", "devices", 0, "capacity", "memory", "value")),
    (Kind.SLICE, ("spec", "devices", 0, "capacity", "memory", "requestPolicy", "default")),
    (Kind.SLICE, ("spec", "devices", 0, "capacity", "memory", "requestPolicy", "validValues", 0)),
    (Kind.SLICE, ("spec", "devices", 0, "capacity", "memory", "requestPolicy", "validRange", "step")),
    (Kind.SLICE, ("spec", "devices", 0, "consumesCounters", 0, "counters", "m", "value")),
    (Kind.SLICE, ("spec", "sharedCounters", 0, "counters", "m", "value")),
    (Kind.CLAIM, ("spec", "devices", "requests", 0, "exactly", "capacity", "requests", "memory")),
    (Kind.CLAIM, ("status", "allocation", "devices", "results", 0, "consumedCapacity", "memory")),
    (Kind.TEMPLATE, ("spec", "spec", "devices", "requests", 0, "firstAvailable", 0, "capacity", "requests", "memory")),
    (Kind.NODE, ("status", "allocatable", "cpu")),
    (Kind.POD, ("spec", "containers", 0, "resources", "requests", "cpu")),
    (Kind.POD, ("spec", "initContainers", 0, "resources", "limits", "cpu")),
)


def places(value: Json, path: FieldPath = ()) -> Iterator[FieldPath]:
    """The path of every value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))


PLACES = [(kind, path) for kind, body in SAMPLES.items() for path in places(body)]


def sample(kind: Kind) -> JsonObject:
    """The kind's sample as a file has it: what occurs twice in it is not one object."""
    made: JsonObject = json.loads(json.dumps(SAMPLES[kind]))
    return made


def with_value(kind: Kind, path: FieldPath, value: Json) -> JsonObject:
    """The kind's sample with another value at a path."""
    made = sample(kind)
    holder: Json = made
    for step in path[:-1]:
        holder = holder[step]  # type: ignore[index]  # the path leads there
    holder[path[-1]] = value  # type: ignore[index]
    return made


def fields(shape: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields of a shape, without the numbers and keys of what may have many values."""
    if isinstance(shape, (Required, MappingOf)):
        yield from fields(shape.shape, path)
    elif isinstance(shape, list):
        yield from fields(shape[0], path)
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            yield (*path, key)
            yield from fields(inner, (*path, key))


def fields_of(shape: Shape, value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Those of them that a value has."""
    if isinstance(shape, Required):
        yield from fields_of(shape.shape, value, path)
    elif isinstance(shape, MappingOf):
        for one in value.values():
            yield from fields_of(shape.shape, one, path)
    elif isinstance(shape, list):
        for one in value:
            yield from fields_of(shape[0], one, path)
    elif isinstance(shape, dict):
        for key in shape.keys() & value.keys():
            yield (*path, key)
            yield from fields_of(shape[key], value[key], (*path, key))


@pytest.mark.parametrize("kind", Kind)
def test_sample_has_every_field_of_its_kind(kind: Kind) -> None:
    assert set(fields(SHAPES[kind])) == set(fields_of(SHAPES[kind], SAMPLES[kind]))


@pytest.mark.parametrize("kind", Kind)
def test_object_that_fits_has_no_misfit(kind: Kind) -> None:
    assert not [*misfits(kind, sample(kind))]
    assert not [*misfits(kind, {**sample(kind), "unknown": {"also": []}})]


@pytest.mark.parametrize(("kind", "path"), PLACES, ids=str)
def test_wrong_type_anywhere_is_named_with_its_path(kind: Kind, path: FieldPath) -> None:
    """Neither a list of lists nor null in a list is any field's value."""
    [found] = misfits(kind, with_value(kind, path, [[None]]))
    assert found.path[: len(path)] == path


@pytest.mark.parametrize("kind", Kind)
def test_fields_that_are_needed_and_no_others_are_missed(kind: Kind) -> None:
    """Other fields may be null; what is null in a list or mapping is of a wrong type."""
    missed: dict[FieldPath, list[Misfit]] = {
        path: [*misfits(kind, with_value(kind, path, None))] for path in places(SAMPLES[kind])
    }
    assert {path for path, found in missed.items() if [each.problem for each in found] == ["is missing"]} == {
        *NEEDED[kind]
    }
    assert all(each.path == path for path, found in missed.items() for each in found)


@pytest.mark.parametrize(("kind", "path"), QUANTITIES, ids=str)
def test_quantity_that_is_a_number_becomes_a_text(kind: Kind, path: FieldPath) -> None:
    body = with_value(kind, path, 80)
    assert not [*misfits(kind, body)]
    assert body == with_value(kind, path, "80")
