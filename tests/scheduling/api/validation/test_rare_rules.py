"""Rules that no recorded verdict reaches: field and reason are those of the API server's sources."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.api.validation.objects import (
    validate_claim,
    validate_claim_status,
    validate_class,
    validate_slice,
    validate_taint_rule_status,
)
from scheduling.api.validation.shapes import Gates
from scheduling.api.validation.storing import as_stored

Found = list[tuple[str, str]]
TIME = "2026-01-01T00:00:00Z"


def found(causes: Any) -> Found:
    return [(cause.field, cause.reason.removeprefix("FieldValue")) for cause in causes]


def condition(**fields: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": TIME, **fields}


def rule_of(*conditions: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r", "uid": "u", **metadata}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, []),
        ({"observedGeneration": -1}, [("observedGeneration", "Invalid")]),
        ({"observedGeneration": 0}, []),
        ({"reason": "R" * 1024}, []),
        ({"reason": "R" * 1025}, [("reason", "TooLong")]),
        ({"reason": "1"}, [("reason", "Invalid")]),
        ({"reason": ""}, [("reason", "Required")]),
        ({"message": "m" * 32768}, []),
        ({"message": "m" * 32769}, [("message", "TooLong")]),
        ({"status": "true"}, [("status", "NotSupported")]),
        ({"lastTransitionTime": None}, [("lastTransitionTime", "Required")]),
        ({"type": "a b"}, [("type", "Invalid")]),
    ],
)
def test_condition_of_a_taint_rule(entry: Any, expected: Found) -> None:
    causes = validate_taint_rule_status(rule_of(condition(**entry)), rule_of())
    assert found(causes) == [(f"status.conditions[0].{field}", reason) for field, reason in expected]


def test_status_of_a_taint_rule_as_a_whole() -> None:
    nine = [condition(type=f"t{at}") for at in range(9)]
    assert validate_taint_rule_status(rule_of(*nine[:8]), rule_of()) == []
    assert found(validate_taint_rule_status(rule_of(*nine), rule_of())) == [("status.conditions", "TooMany")]
    twice = rule_of(nine[0], nine[0])
    assert found(validate_taint_rule_status(twice, rule_of())) == [("status.conditions[1].type", "Duplicate")]
    assert found(validate_taint_rule_status(rule_of(uid="v"), rule_of())) == [("metadata.uid", "Invalid")]
    assert validate_taint_rule_status(rule_of(namespace="a"), rule_of(namespace="b")) == []
    assert found(validate_taint_rule_status({"status": 1}, rule_of())) == [("status", "TypeInvalid")]


def test_effect_of_a_taint_rule_is_dated_when_it_changes() -> None:
    def rule(effect: str, **taint: str) -> dict[str, Any]:
        spec = {"taint": {"key": "k", "effect": effect, **taint}}
        return {"kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}

    def dated(new: Any, old: Any) -> Any:
        return as_stored(new, old=old, now="2030-01-01T00:00:00Z")["spec"]["taint"]["timeAdded"]

    old = rule("None", timeAdded=TIME)
    assert dated(rule("None", timeAdded=TIME), old) == TIME
    assert dated(rule("NoExecute", timeAdded=TIME), old) == "2030-01-01T00:00:00Z"
    assert dated(rule("NoExecute", timeAdded="2027-01-01T00:00:00Z"), old) == "2027-01-01T00:00:00Z"


def test_metadata_that_an_update_may_not_change() -> None:
    def class_of(**metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": "c", **metadata}}

    deleted = class_of(deletionTimestamp=TIME, deletionGracePeriodSeconds=0, finalizers=["a/b"])
    assert validate_class(deleted, deleted) == []
    assert found(validate_class(class_of(deletionTimestamp=TIME), class_of())) == [
        ("metadata.deletionTimestamp", "Invalid")
    ]
    assert found(validate_class(class_of(deletionGracePeriodSeconds=1), class_of(deletionGracePeriodSeconds=2))) == [
        ("metadata.deletionGracePeriodSeconds", "Invalid")
    ]
    more = class_of(deletionTimestamp=TIME, finalizers=["a/b", "a/c"])
    assert found(validate_class(more, deleted)) == [("metadata.finalizers", "Forbidden")]
    assert validate_class(class_of(finalizers=["a/b", "a/c"]), class_of()) == []
    assert found(validate_class(class_of(name="d"), class_of())) == [("metadata.name", "Invalid")]
    claim: dict[str, Any] = {"metadata": {"name": "c", "namespace": "n"}}
    moved = {"metadata": {"name": "c", "namespace": "m"}}
    assert found(validate_claim(moved, claim)) == [("metadata.namespace", "Invalid")]
    # A namespace of what has none is dropped.
    assert validate_class(class_of(namespace="m"), class_of(namespace="n")) == []


def test_metadata_of_owners_and_finalizers() -> None:
    both = {"metadata": {"name": "c", "finalizers": ["orphan", "foregroundDeletion"]}}
    assert found(validate_class(both)) == [("metadata.finalizers", "Invalid")]
    event = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}
    assert found(validate_class({"metadata": {"name": "c", "ownerReferences": [event]}})) == [
        ("metadata.ownerReferences", "Invalid")
    ]
    claim = {"metadata": {"name": "c", "generation": -1}}
    assert found(validate_claim(claim)) == [("metadata.generation", "Invalid")]
    assert validate_class(claim) == []


def range_of(policy: Any, value: str = "8") -> Found:
    capacity = {"c": {"value": value, "requestPolicy": policy}}
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": capacity}
    spec = {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "allNodes": True, "devices": [device]}
    at = "spec.devices[0].capacity[c].requestPolicy"
    causes = validate_slice({"metadata": {"name": "s"}, "spec": spec})
    return [(field.removeprefix(at), reason) for field, reason in found(causes)]


def test_request_policy_with_a_range() -> None:
    assert range_of({}) == range_of({"default": "9"}) == []
    assert range_of({"default": "2", "validRange": {"min": "2", "max": "8", "step": "6"}}) == []
    assert range_of({"default": "9", "validRange": {"min": "9"}}) == [(".validRange.min", "Invalid")]
    assert range_of({"default": "1", "validRange": {"min": "2"}}) == [(".validRange.min", "Invalid")]
    assert range_of({"default": "1", "validRange": {}}) == [(".validRange.min", "Required")]
    assert range_of({"validRange": {"min": "2"}}) == [(".default", "Required")]


def test_node_selector_requirements_have_as_many_values_as_their_operator_takes() -> None:
    def causes(operator: str, *values: str) -> Found:
        term = {"matchExpressions": [{"key": "k", "operator": operator, "values": list(values)}]}
        pool = {"name": "p", "resourceSliceCount": 1}
        spec = {"driver": "d", "pool": pool, "nodeSelector": {"nodeSelectorTerms": [term]}}
        return found(validate_slice({"metadata": {"name": "s"}, "spec": spec}))

    at = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]"
    assert causes("In") == causes("NotIn") == causes("Gt") == causes("Lt", "1", "2") == [(f"{at}.values", "Required")]
    assert causes("Exists", "a") == causes("DoesNotExist", "a") == [(f"{at}.values", "Forbidden")]
    assert causes("Near", "a") == [(f"{at}.operator", "Invalid")]
    assert causes("In", "a", "b") == causes("Gt", "1") == causes("Exists") == []


def test_admin_access_in_a_result_needs_the_namespace_only_when_it_is_new() -> None:
    exactly = {"deviceClassName": "c", "adminAccess": True}
    claim: dict[str, Any] = {
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x", "adminAccess": True}
    allocated = {**claim, "status": {"allocation": {"devices": {"results": [{**result, "adminAccess": None}, result]}}}}
    field = "status.allocation.devices.results[1].adminAccess"
    assert found(validate_claim_status(allocated, claim)) == [(field, "Forbidden")]
    assert validate_claim_status(allocated, claim, admin_namespace=True) == []
    assert validate_claim_status(allocated, allocated) == []


def test_constraint_without_attribute_where_only_one_is_known() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request], "constraints": [{}]}}}
    field = "spec.devices.constraints[0]"
    assert found(validate_claim(claim)) == [(field, "Required")]
    assert found(validate_claim(claim, None, Gates(consumable_capacity=False))) == [
        (f"{field}.matchAttribute", "Required")
    ]


@pytest.mark.parametrize("time", ["2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z", "0001-01-01T00:00:00+01:00"])
def test_time_that_is_none_is_refused(time: str) -> None:
    [cause] = validate_class({"metadata": {"name": "c", "creationTimestamp": time}})
    assert str(cause).startswith("metadata.creationTimestamp: must be a time in the form of RFC 3339")


@pytest.mark.parametrize(
    ("address", "good"),
    [
        *(("10.9.8.7/24", True), ("10.9.8.7/0", True), ("2001:db8::1/64", True), ("::1/128", True)),
        *(("10.9.8.7", False), ("10.9.8.7/", False), ("10.9.8.7/024", False), ("10.9.8.7/33", False)),
        *(("10.9.8.7/-1", False), ("10.9.8.7/+8", False), ("10.9.8.7/\u0661", False), ("10.9.8.07/24", False)),
        *(("2001:DB8::1/64", False), ("fe80::1%eth0/64", False), ("::ffff:1.2.3.4/24", False), ("/24", False)),
    ],
)
def test_address_of_a_device_is_canonical(address: str, good: bool) -> None:
    device = {"driver": "d", "pool": "p", "device": "x"}
    allocation = {"devices": {"results": [{"request": "r", **device}]}}
    old = {"metadata": {"name": "c"}, "status": {"allocation": allocation}}
    status = {"allocation": allocation, "devices": [{**device, "networkData": {"ips": [address]}}]}
    expected = [] if good else [("status.devices[0].networkData.ips[0]", "Invalid")]
    assert found(validate_claim_status({**old, "status": status}, old)) == expected
