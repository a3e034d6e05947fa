"""Constraints: the recorded results and kinds of errors, and their texts."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.pools.constraints import ConstraintError, ConstraintFault, DeviceFacts, constraint, outcome_of
from scheduling.pools.documents import PoolAttribute
from scheduling.pools.fields import DocumentError
from scheduling.pools.reading import decode
from tests.making.pool_documents import DRIVER, attributes, claim, recorded


def facts(given: list[dict[str, Any]]) -> DeviceFacts:
    return DeviceFacts(decode("DevicePool", {"spec": {"attributes": given}}).spec.attributes)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in recorded("constraints")])
def test_constraint_has_the_recorded_outcome(case: dict[str, Any]) -> None:
    outcome = outcome_of(case["constraints"], facts(case["attributes"]))
    expected = case["expect"]
    assert (outcome.error.fault.value if outcome.error else None) == expected.get("errorKind")
    assert outcome.result == expected.get("result", False)


NUMBERS = f"[{', '.join(map(str, range(40)))}]"
COSTLY = f"{NUMBERS}.all(x, {NUMBERS}.all(y, {NUMBERS}.all(z, {NUMBERS}.all(u, x + y + z + u >= 0))))"
TEXTS = [
    ("device.a = 1", ConstraintFault.COMPILE, "1:10: unexpected character '=': a single '=' is not an operator, write"),
    ("device.b == 'x'", ConstraintFault.UNKNOWN_ATTRIBUTE, "no attribute b; guard it with has(device.b)"),
    ("device.a > 'x'", ConstraintFault.RUNTIME, "wrong type, such as a text beside a number (no such overload"),
    ("device.memory == '1Gi'", ConstraintFault.QUANTITY, "memory is a quantity, whose value constraints cannot use"),
    ("device.memory < 1", ConstraintFault.QUANTITY, "request it as an amount"),
    ("1 < device.memory", ConstraintFault.QUANTITY, "request it as an amount"),
    ("string(device.memory) == ''", ConstraintFault.QUANTITY, "request it as an amount"),
    ("device.memory", ConstraintFault.QUANTITY, "request it as an amount"),
    ("device.a", ConstraintFault.NOT_BOOL, "it must be true or false, but is of type int"),
    ("1 / 0 == 1", ConstraintFault.RUNTIME, "divi"),
    ("device.driver == 'x'", ConstraintFault.UNKNOWN_ATTRIBUTE, "no attribute driver"),
    ("device.attributes.gpu.a == 1", ConstraintFault.UNKNOWN_ATTRIBUTE, "no attribute attributes"),
    ("device.capacity.gpu.a == 1", ConstraintFault.UNKNOWN_ATTRIBUTE, "no attribute capacity"),
    ("optional.none()", ConstraintFault.NOT_BOOL, "it must be true or false, but is of type optional_type"),
    (COSTLY, ConstraintFault.RUNTIME, "it costs more than 1000000 units"),
]


@pytest.mark.parametrize(("text", "fault", "message"), TEXTS)
def test_error_says_what_failed_and_what_to_do(text: str, fault: ConstraintFault, message: str) -> None:
    device = facts([*attributes({"a": 1}), {"name": "memory", "quantityValue": "1Gi"}])
    error = outcome_of(text, device).error
    assert error is not None
    assert error.fault is fault
    assert str(error).startswith(f'constraint "{text[:100]}')
    assert message in str(error)


def test_attributes_that_resource_slices_name_are_ordinary_ones() -> None:
    device = facts(attributes({"driver": "x", "allowMultipleAllocations": 1}))
    assert outcome_of("device.driver == 'x' && device.allowMultipleAllocations == 1", device).result
    texts = facts(attributes({"attributes": "x", "capacity": "y"}))
    assert outcome_of("device.attributes == 'x' && device.capacity == 'y'", texts).result
    for name in ("attributes", "capacity"):
        error = outcome_of(f"device.{name}['{DRIVER}'].a == 1", texts).error
        assert error is not None
        assert error.fault is ConstraintFault.UNKNOWN_ATTRIBUTE


def test_an_optional_result_is_its_value() -> None:
    assert outcome_of("optional.of(true)", facts([])).result


def test_functions_of_kubernetes_can_be_used() -> None:
    device = DeviceFacts((PoolAttribute("v", string="1.10.0"),))
    assert outcome_of("semver(device.v).isGreaterThan(semver('1.9.0'))", device).result


def test_broken_constraint_is_refused_with_its_document() -> None:
    with pytest.raises(ConstraintError):
        constraint("device.")
    with pytest.raises(DocumentError, match=r"DeviceClaim claim: spec.claims\[0\].constraints: constraint .* 1:"):
        claim({"constraints": "device.model = 'a'"})


def test_the_message_about_a_long_constraint_shows_its_ends() -> None:
    text = " && ".join(f"device.a{number} == 1" for number in range(500)) + " &&"
    with pytest.raises(ConstraintError) as caught:
        constraint(text)
    assert str(caught.value).startswith('constraint "device.a0 == 1 && ')
    assert len(str(caught.value)) < 500
