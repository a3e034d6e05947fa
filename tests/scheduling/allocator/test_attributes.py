"""Attributes as constraints see them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.allocator.constraints import AttributeValues, as_values, lookup, scalar
from scheduling.allocator.slices import Slice
from tests.making.slices import DRIVER, device, resource_slice


def found(name: str, attributes: dict[str, Any]) -> object:
    made = resource_slice([device("d", attributes)])
    return lookup(Slice(made).devices[0], name)


def test_attribute_is_found_by_its_full_name() -> None:
    assert found("example.com/numa", {"example.com/numa": 1}) == {"int": 1}


def test_attribute_without_a_domain_belongs_to_its_driver() -> None:
    assert found(f"{DRIVER}/numa", {"numa": 1}) == {"int": 1}
    assert found("example.com/numa", {"numa": 1}) is None
    assert found("numa/x", {"x": 1}) is None


def test_full_name_goes_before_the_short_one() -> None:
    assert found(f"{DRIVER}/numa", {"numa": 1, f"{DRIVER}/numa": 2}) == {"int": 2}


def test_name_without_a_domain_is_only_that_name() -> None:
    assert found("numa", {"numa": 1}) == {"int": 1}
    assert found("nosuch", {"numa": 1}) is None


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"string": "a"}, ("string", "a")),
        ({"int": 0}, ("int", 0)),
        ({"bool": False}, ("bool", False)),
        ({"version": "1.0.0"}, ("version", "1.0.0")),
        ({"int": None}, None),
        ({"ints": [1]}, None),
        ({"future": 1}, None),
        ({}, None),
    ],
)
def test_plain_value_has_its_type(attribute: dict[str, Any], value: object) -> None:
    assert scalar(attribute) == value


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        ({"ints": [1, 2, 1]}, AttributeValues("int", frozenset({1, 2}))),
        ({"strings": ["a"]}, AttributeValues("string", frozenset({"a"}))),
        ({"bools": [True]}, AttributeValues("bool", frozenset({True}))),
        ({"versions": ["1.0.0"]}, AttributeValues("version", frozenset({"1.0.0"}))),
        ({"int": 5}, AttributeValues("int", frozenset({5}))),
        ({"bool": False}, AttributeValues("bool", frozenset({False}))),
        ({"string": ""}, AttributeValues("string", frozenset({""}))),
        ({"version": "1.0.0"}, AttributeValues("version", frozenset({"1.0.0"}))),
        ({"ints": []}, None),
        ({}, None),
    ],
)
def test_plain_value_counts_as_a_list_of_one(attribute: dict[str, Any], values: AttributeValues | None) -> None:
    assert as_values(attribute) == values


def test_values_of_two_types_share_nothing() -> None:
    assert (
        AttributeValues("string", frozenset({"1.0.0"})).shared_with(AttributeValues("version", frozenset({"1.0.0"})))
        is None
    )


@given(st.frozensets(st.integers(0, 5), min_size=1), st.frozensets(st.integers(0, 5), min_size=1))
def test_values_share_what_both_have(one: frozenset[int], other: frozenset[int]) -> None:
    shared = AttributeValues("int", one).shared_with(AttributeValues("int", other))
    assert shared == (AttributeValues("int", one & other) if one & other else None)
    assert shared == AttributeValues("int", other).shared_with(AttributeValues("int", one))
