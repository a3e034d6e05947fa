"""What a user reads: the value, and what to do."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from scheduling.api.validation.decoding import Undecodable, decoded
from scheduling.api.validation.objects import validate_claim, validate_claim_status, validate_class, validate_slice
from scheduling.api.validation.shapes import Gates


def slice_of(*devices: Any, **spec: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "pool": pool, "allNodes": True, "devices": list(devices)} | spec,
    }


def claim_of(*requests: Any, **devices: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests), **devices}}}


def request_of(**exactly: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}


def capacity_of(policy: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": "8Gi", "requestPolicy": policy}}
    return {"name": "d", "allowMultipleAllocations": True, "capacity": capacity}


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ({"name": "GPU"}, "spec.devices[0].name: 'GPU' must consist of lower case letters, digits or '-'"),
        ({"name": "d", "attributes": {"a": {}}}, "[] are set; set exactly one of int, bool, string, version"),
        ({"name": "d", "attributes": {"a": {"string": "x" * 65}}}, "has 65 bytes, at most 64 are allowed"),
        ({"name": "d", "attributes": {"a": {"string": "\u00e9" * 33}}}, "has 66 bytes, at most 64 are allowed"),
        ({"name": "d", "attributes": {"a": {"int": 1, "bool": True}}}, "['int', 'bool'] are set; set exactly one of"),
        ({"name": "d", "attributes": {"a b": {"int": 1}}}, "'a b' must be letters, digits and '_'"),
        ({"name": "d", "attributes": {"x" * 33: {"int": 1}}}, "has 33 bytes, at most 32 are allowed"),
        ({"name": "d", "capacity": {"a b": {"value": "1"}}}, "'a b' must be letters, digits and '_'"),
        ({"name": "d", "attributes": {"a": {"version": "1.0"}}}, "'1.0' must be a version by semver.org 2.0.0"),
        ({"name": "d", "attributes": {"a/": {"int": 1}}}, "'a/' must have a name after its '/'"),
        ({"name": "d", "nodeName": "n"}, "['nodeName'] need perDeviceNodeSelection: true in the slice"),
        ({"name": "d", "taints": [{"key": "k", "effect": "Never"}]}, "'Never' is unknown; use one of NoExecute"),
        ({"name": "d", "bindingConditions": ["a"]}, "[] must be set beside bindingConditions"),
        (capacity_of({"default": "1Gi", "validValues": ["2Gi"]}), "'1Gi' is the default and must be among the values"),
        (capacity_of({"default": "1", "validRange": {"min": "0", "step": "0"}}), "'0' must not be zero"),
        (capacity_of({"default": "9Gi", "validRange": {"min": "1Gi", "max": "8Gi"}}), "must not be above max 8Gi"),
        (
            {"name": "d", "attributes": {f"a{n}": {"int": 1} for n in range(33)}},
            "33 attributes and capacities; at most",
        ),
        ({"name": "d", "capacity": {"c": {"value": 1 << 200_000}}}, "8Gi, is a number of 200001 bits"),
        ({"name": "d", "capacity": {"c": {"value": "much"}}}, "must be a quantity such as 500m or 8Gi, is 'much'"),
    ],
)
def test_fault_of_a_device_names_value_and_fix(device: Any, text: str) -> None:
    [cause] = validate_slice(slice_of(device))
    assert text in str(cause)


def test_path_of_an_undecodable_value_leads_through_lists_and_mappings() -> None:
    devices = [{"name": "a"}, {"name": "b", "attributes": {"x.y/z": {"ints": [1, "2"]}}}]
    with pytest.raises(Undecodable) as caught:
        decoded(slice_of(*devices), "ResourceSlice")
    assert caught.value.field == "spec.devices[1].attributes[x.y/z].ints[1]"
    assert str(caught.value) == f"{caught.value.field}: must be a whole number of 64 bits, is '2'"


def test_faults_of_a_slice() -> None:
    assert [str(cause) for cause in validate_slice(slice_of(allNodes=None))] == [
        "spec: must have one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection"
    ]
    many = slice_of(*({"name": f"d{at}"} for at in range(129)))
    assert [str(cause) for cause in validate_slice(many)] == ["spec.devices: has 129 entries, at most 128 are allowed"]
    twice = slice_of({"name": "d"}, {"name": "d"})
    assert [str(cause) for cause in validate_slice(twice)] == [
        "spec.devices[1]: 'd' occurs before; remove one of the two"
    ]
    changed = validate_slice(slice_of(driver="e"), slice_of())
    assert [str(cause) for cause in changed] == ["spec.driver: 'e' must stay 'd'; delete the slice and make another"]


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (claim_of({"name": "r"}), "spec.devices.requests[0]: must have exactly or firstAvailable"),
        (claim_of(request_of(count=-1)), "-1 must be above zero"),
        (claim_of(request_of(allocationMode="All", count=1)), "1 must be left out with allocationMode All"),
        (claim_of(request_of(adminAccess=True)), 'needs the label resource.kubernetes.io/admin-access: "true"'),
        (claim_of(request_of(selectors=[{}])), "selectors[0].cel: must hold an expression"),
        (claim_of(request_of(selectors=[{"cel": {"expression": "device."}}])), "'device.' does not compile: 1:"),
        (claim_of(request_of(), constraints=[{}]), "must have matchAttribute or distinctAttribute"),
        (
            claim_of(request_of(), constraints=[{"requests": ["x"], "matchAttribute": "a/b"}]),
            "'x' must be '<request>' or '<request>/<alternative>' of this claim",
        ),
        (
            claim_of(request_of(), constraints=[{"matchAttribute": "b"}]),
            "'b' must have a domain: write '<driver>/<name>'",
        ),
        (claim_of(request_of(), config=[{}]), "config[0].opaque: must hold a driver and its parameters"),
    ],
)
def test_fault_of_a_claim_names_value_and_fix(claim: Any, text: str) -> None:
    [cause] = validate_claim(claim)
    assert text in str(cause)


def test_dear_expression_is_named_with_its_cost() -> None:
    numbers = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    dear = "true"
    for name in "abcdef":
        dear = f"{numbers}.all({name}, {dear})"
    resource = {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": dear}}]}}
    [cause] = validate_class(resource)
    assert re.search(r"cel.expression: may cost \d+, at most 1000000 are allowed; test fewer", str(cause))


def test_state_of_a_device_that_the_claim_has_not() -> None:
    claim = claim_of(request_of())
    state = {"driver": "d", "pool": "p", "device": "x", "conditions": []}
    [cause] = validate_claim_status({**claim, "status": {"devices": [state]}}, claim)
    assert str(cause) == "status.devices[0]: 'd/p/x' must be a device that is allocated to this claim"


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("text", ": must be a mapping, is 'text'"),
        ({"spec": {"devices": {}}}, "spec.devices: must be a list, is {}"),
        ({"spec": {"driver": 1}}, "spec.driver: must be a string, is 1"),
        ({"spec": {"pool": {"generation": 2**63}}}, "spec.pool.generation: must be a whole number of 64 bits, is 9223"),
        ({"spec": {"pool": {"generation": True}}}, "must be a whole number of 64 bits, is True"),
        ({"spec": {"allNodes": "yes"}}, "spec.allNodes: must be true or false, is 'yes'"),
        ({"metadata": {"labels": {1: "x"}}}, "metadata.labels: must be a mapping of strings, is 1"),
        (
            {"spec": {"devices": [{"taints": [{"timeAdded": "now"}]}]}},
            "spec.devices[0].taints[0].timeAdded: must be a time in the form of RFC 3339",
        ),
        ({"spec": {"devices": [{"attributes": {"a": {"int": 1.5}}}]}}, "attributes[a].int: must be a whole number"),
    ],
)
def test_undecodable_object_is_refused_with_the_field(resource: Any, text: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decoded(resource, "ResourceSlice")
    assert text in str(caught.value)
    [cause] = validate_slice(resource)
    assert cause.reason == "FieldValueTypeInvalid"
    assert text in str(cause)


def nested(depth: int) -> Any:
    inner: Any = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def looped() -> Any:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    return loop


@pytest.mark.parametrize("name", [nested(200_000), looped(), ["x"] * 100_000])
def test_value_of_any_size_is_shown_in_a_line(name: Any) -> None:
    [cause] = validate_class({"metadata": {"name": name}})
    assert cause.message.startswith("must be a string, is ")
    assert len(cause.message) < 200


@pytest.mark.parametrize("parameters", [{"a": date(2026, 1, 1)}, {"a": float("nan")}, looped(), nested(200_000)])
def test_parameters_that_are_no_json_are_refused(parameters: Any) -> None:
    config = [{"opaque": {"driver": "d", "parameters": parameters}}]
    [cause] = validate_class({"metadata": {"name": "c"}, "spec": {"config": config}})
    assert str(cause).startswith("spec.config[0].opaque.parameters: must be plain JSON: no dates, no not-a")


def test_size_of_annotations_counts_keys_and_values() -> None:
    def causes(length: int) -> list[str]:
        return [str(each) for each in validate_class({"metadata": {"name": "c", "annotations": {"key": "x" * length}}})]

    limit = 256 * 1024 - len("key")
    assert causes(limit) == []
    assert causes(limit + 1) == ["metadata.annotations: has 262145 bytes, at most 262144 are allowed"]


def test_annotation_keys_are_label_keys_in_any_case() -> None:
    assert validate_class({"metadata": {"name": "c", "annotations": {"Example.com/A": ""}}}) == []
    [cause] = validate_class({"metadata": {"name": "c", "annotations": {"a b": ""}}})
    assert str(cause).startswith("metadata.annotations: 'a b' must consist of letters, digits, '-', '_' or '.'")


def test_reference_to_a_request_that_cannot_be_one_says_both() -> None:
    claim = claim_of(request_of(), constraints=[{"requests": ["R"], "matchAttribute": "a/b"}])
    assert [cause.message.split()[2] for cause in validate_claim(claim)] == ["consist", "be"]
    claim = claim_of(request_of(), constraints=[{"requests": ["r/s/T"], "matchAttribute": "a/b"}])
    assert [cause.message.split()[2] for cause in validate_claim(claim)] == ["be"]


def test_node_resources_of_a_device() -> None:
    def causes(resource: str, **mapping: Any) -> list[str]:
        device = {
            "name": "d",
            "capacity": {"cores": {"value": "8"}},
            "nodeAllocatableResourceMappings": {resource: mapping},
        }
        return [str(cause) for cause in validate_slice(slice_of(device), None, Gates(node_allocatable_resources=True))]

    at = "spec.devices[0].nodeAllocatableResourceMappings"
    assert causes("cpu") == causes("kubernetes.io/x", capacityKey="cores", allocationMultiplier="500m") == []
    for multiplier in ("0", "-1"):
        assert causes("cpu", allocationMultiplier=multiplier) == [
            f"{at}[cpu].allocationMultiplier: '{multiplier}' must be above zero"
        ]
    assert causes("cpu", capacityKey="") == [f"{at}[cpu].capacityKey: '' must be left out or name a capacity"]
    assert causes("cpu", capacityKey="x") == [f"{at}[cpu].capacityKey: 'x' is not a capacity of this device"]
    assert causes("a/b") == [
        f"{at}[a/b]: 'a/b' must be a resource of Kubernetes' own, such as cpu or memory",
    ]


def test_name_from_a_long_prefix_is_made_of_its_first_bytes() -> None:
    def fields(prefix: str) -> list[str]:
        return [cause.field for cause in validate_class({"metadata": {"generateName": prefix}})]

    assert fields("a" * 58 + "É") == []
    assert fields("a" * 57 + "É") == ["metadata.name"]
