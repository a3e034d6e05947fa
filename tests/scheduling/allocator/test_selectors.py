"""Selectors of classes and requests, and what is said of those that fail."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.pools import Features
from scheduling.allocator.reading import FatalError
from scheduling.allocator.selectors import SelectorError
from scheduling.cel.errors import CompileError, EvaluationError
from tests.making.claims import claim, request
from tests.making.slices import Json, device, of, slices
from tests.scheduling.allocator.manifests import NODE, allocator, devices_of, problem

DEVICES = slices([device("d0", {"model": "a"}), device("d1", {"model": "b", "size": 2})])


def device_class(*expressions: str, **fields: Any) -> dict[str, Json]:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"any": {"metadata": {"name": "any"}, "spec": {"selectors": selectors, **fields}}}


def allocated(selector: str, classes: dict[str, Json]) -> object:
    return devices_of(allocator([claim([request("r", 1, selector)])], DEVICES, classes=classes).allocate(NODE))


def test_all_selectors_of_class_and_request_must_hold() -> None:
    is_b = f'{of("model")} == "b"'
    assert allocated("true", device_class("true", is_b)) == [["r=d1"]]
    assert allocated(is_b, device_class("true")) == [["r=d1"]]
    assert allocated(is_b, device_class("false")) is None


def test_class_is_asked_before_the_request() -> None:
    """A request may rely on what its class has made sure of."""
    assert allocated(f"{of('size')} == 2", device_class(f"has({of('size')})")) == [["r=d1"]]


def test_expression_that_does_not_compile_is_named_with_its_place() -> None:
    with pytest.raises(SelectorError) as caught:
        allocated("device.driver ==", device_class())
    text = str(caught.value)
    assert text.startswith(
        "ResourceClaim team/claim: spec.devices.requests[0].exactly.selectors[0].cel.expression: "
        "the expression does not compile: "
    )
    assert isinstance(caught.value.cause, CompileError)
    assert caught.value.device is None
    assert isinstance(caught.value, FatalError)


def test_expression_that_fails_on_a_device_is_named_with_the_device_and_a_way_out() -> None:
    with pytest.raises(SelectorError) as caught:
        allocated("true", device_class("true", f"{of('size')} == 2"))
    text = str(caught.value)
    assert text.startswith(
        "DeviceClass any: spec.selectors[1].cel.expression: the expression fails on device gpu.example.com/pool/d0: "
    )
    assert "no such key" in text
    assert text.endswith("(use .? with orValue(), or has(), where a device may lack it)")
    assert isinstance(caught.value.cause, EvaluationError)
    assert caught.value.device is not None


def test_other_failures_have_no_hint() -> None:
    with pytest.raises(SelectorError) as caught:
        allocated(f"{of('model')} > 1", device_class())
    assert "orValue" not in str(caught.value)


def test_class_selector_of_another_kind_is_refused() -> None:
    with pytest.raises(FatalError) as caught:
        allocated("true", device_class(selectors=[{"rego": {}}]))
    message = "the selector is not CEL; no other kind is supported"
    assert str(caught.value) == f"DeviceClass any: spec.selectors[0]: {message}"


def test_failure_is_met_again_on_an_equal_device() -> None:
    made = allocator([claim([request("r", 1, f"{of('size')} == 2")])], DEVICES)
    texts = []
    for _ in range(2):
        with pytest.raises(SelectorError) as caught:
            made.allocate(NODE)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_device_with_binding_conditions_is_left_out_while_the_feature_is_off() -> None:
    bound = slices([device("d0", bindingConditions=["example.com/attached"]), device("d1")])
    wanted = [claim([request("r")])]
    off = allocator(wanted, bound, features=Features(binding_conditions=False))
    assert devices_of(off.allocate(NODE)) == [["r=d1"]]
    assert devices_of(allocator(wanted, bound).allocate(NODE)) == [["r=d0"]]


def test_device_that_cannot_be_busy_is_not_asked_about() -> None:
    """What nobody asks for cannot fail: the search ends before the second device."""
    made = problem([claim([request("r", 1, f'{of("size")} == 2 || {of("model")} == "a"')])], DEVICES)
    plan, own = made.claims[0].plans[0][0], made.claims[0].claim
    assert made.known_amounts(plan, 0) is None
    assert made.amounts(plan, own, 0) == {}
    assert made.known_amounts(plan, 0) == {}
