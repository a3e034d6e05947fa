"""Constraints as steps from state to state, and attributes as constraints see them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.allocator.claims import Claim
from scheduling.allocator.constraints import (
    REFUSED,
    START,
    AttributeValues,
    Constraint,
    State,
    as_values,
    constraints_of,
    covering,
    lookup,
    scalar,
)
from scheduling.allocator.reading import FatalError
from scheduling.allocator.slices import ResourceSlice, SliceDevice
from tests.making.claims import claim, distinct, exactly, first_available, match, request
from tests.making.slices import DRIVER, Json, device, resource_slice

plain = st.one_of(st.integers(0, 2), st.booleans(), st.sampled_from(("0", "1")), st.just({"version": "1.0.0"}))
lists = st.one_of(plain, st.lists(st.integers(0, 3), min_size=1, max_size=3))
missing = st.just(None)


def constraint(made: Json, *, list_attributes: bool = False) -> Constraint:
    return constraints_of(Claim(claim([request("r")], made)), list_attributes)[0]


def devices(values: Sequence[Any]) -> tuple[SliceDevice, ...]:
    entries = [device(f"d{i}", None if each is None else {"a": each}) for i, each in enumerate(values)]
    return ResourceSlice(resource_slice(entries)).devices


def after(made: Constraint, placed: Sequence[SliceDevice]) -> object:
    """The state after some devices; REFUSED once one was refused."""
    state: State = START
    for each in placed:
        added = made.add(state, each)
        if added is REFUSED:
            return REFUSED
        state = added
    return state


@given(st.lists(st.one_of(lists, missing), max_size=4), st.booleans(), st.sampled_from((match, distinct)))
def test_order_of_devices_does_not_matter(values: list[Any], list_attributes: bool, kind: Any) -> None:
    if not list_attributes and any(isinstance(each, list) for each in values):
        return  # without list attributes such a device can only be the first
    made = constraint(kind("a"), list_attributes=list_attributes)
    results = {after(made, each) for each in permutations(devices(values))}
    if kind is match and len(results) == 2:
        pytest.fail(f"{values}: {results}")
    assert (REFUSED in results) == (results == {REFUSED})


@given(st.lists(st.one_of(lists, missing), max_size=5), st.booleans(), st.sampled_from((match, distinct)))
def test_refusal_is_final(values: list[Any], list_attributes: bool, kind: Any) -> None:
    """A device that a state refuses is refused by every later state as well: pruning relies on it."""
    made = constraint(kind("a"), list_attributes=list_attributes)
    known = devices(values)
    state: State = START
    refused: set[SliceDevice] = set()
    for each in known:
        if state is not START:
            refused |= {other for other in known if made.add(state, other) is REFUSED}
        added = made.add(state, each)
        if added is REFUSED:
            continue
        state = added
        assert all(made.add(state, other) is REFUSED for other in refused)


@given(st.lists(lists, min_size=1, max_size=4), st.booleans(), st.sampled_from((match, distinct)))
def test_adding_changes_no_earlier_state(values: list[Any], list_attributes: bool, kind: Any) -> None:
    """So the way back is to take an earlier state again."""
    made = constraint(kind("a"), list_attributes=list_attributes)
    known = devices(values)
    before = made.add(START, known[0])
    if before is REFUSED:
        return
    copy = hash(before)
    ways = [after(made, [known[0], each]) for each in known]
    assert hash(before) == copy
    assert ways == [after(made, [known[0], each]) for each in known]


@pytest.mark.parametrize("list_attributes", [False, True])
@pytest.mark.parametrize("kind", [match, distinct])
def test_device_without_the_attribute_is_refused(kind: Any, list_attributes: bool) -> None:
    made = constraint(kind("a"), list_attributes=list_attributes)
    assert made.add(START, devices([None])[0]) is REFUSED


def accepts(kind: Any, values: Sequence[Any], *, list_attributes: bool = False) -> bool:
    return after(constraint(kind("a"), list_attributes=list_attributes), devices(values)) is not REFUSED


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        ([1, 1, 1], True),
        ([1, 1, 2], False),
        ([1, "1"], False),
        ([1, True], False),
        (["1.0.0", {"version": "1.0.0"}], False),
        ([{"version": "1.0.0"}, {"version": "1.0.0+b"}], False),
        ([{}], True),
        ([{}, {}], False),
        ([1, {}], False),
    ],
)
def test_match_wants_one_type_and_value(values: list[Any], accepted: bool) -> None:
    assert accepts(match, values) is accepted


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        ([[1, 2], [2, 3], 2], True),
        ([[1, 2], [2, 3], [3, 1]], False),
        ([[1, 2], 1, 2], False),
        ([1, "1"], False),
        ([{}], False),
    ],
)
def test_match_of_lists_wants_a_value_that_all_share(values: list[Any], accepted: bool) -> None:
    assert accepts(match, values, list_attributes=True) is accepted


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        ([1, 2, 3], True),
        ([1, 2, 1], False),
        ([1, "1", True], True),
        ([{}, 1, 2], True),
        ([1, {}], False),
        ([{}, {}], False),
    ],
)
def test_distinct_wants_different_values(values: list[Any], accepted: bool) -> None:
    assert accepts(distinct, values) is accepted


@pytest.mark.parametrize(
    ("values", "accepted"), [([[1, 2], [3], 4], True), ([[1, 2], [2, 3]], False), ([[1], "1"], True), ([{}], False)]
)
def test_distinct_of_lists_wants_values_that_none_share(values: list[Any], accepted: bool) -> None:
    assert accepts(distinct, values, list_attributes=True) is accepted


@given(st.lists(lists, min_size=2, max_size=2), st.booleans())
def test_devices_match_exactly_if_they_have_a_value_in_common(values: list[Any], list_attributes: bool) -> None:
    if not list_attributes and any(isinstance(each, list) for each in values):
        return
    made = constraint(match("a"), list_attributes=list_attributes)
    one, other = devices(values)
    common = set(made.values(one)) & set(made.values(other))
    assert (after(made, [one, other]) is not REFUSED) == bool(common)


def test_device_without_a_plain_value_has_nothing_in_common_with_any() -> None:
    made = constraint(match("a"))
    one, other, lacking = devices([{}, [1], None])
    assert not set(made.values(one)) & set(made.values(other))
    assert not list(made.values(lacking))


def test_constraint_of_no_known_kind_is_refused() -> None:
    with pytest.raises(FatalError) as caught:
        constraints_of(Claim(claim([request("r")], match("a"), {"requests": ["r"]})), list_attributes=False)
    assert str(caught.value) == (
        "ResourceClaim team/claim: spec.devices.constraints[1]: neither matchAttribute nor distinctAttribute is set"
    )


def test_constraint_covers_the_requests_it_names_and_their_alternatives() -> None:
    wanted = [request("a"), first_available("b", exactly(), exactly())]
    made = Claim(claim(wanted, match("x"), match("x", "a"), match("x", "b"), match("x", "b/s1"), match("x", "s1")))
    constraints = constraints_of(made, list_attributes=False)
    found = {each.name: covering(constraints, each) for choice in made.requests for each in choice.alternatives}
    assert found == {"a": (0, 1), "b/s0": (0, 2), "b/s1": (0, 2, 3)}


def found(name: str, attributes: dict[str, Any]) -> object:
    made = resource_slice([device("d", attributes)])
    return lookup(ResourceSlice(made).devices[0], name)


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
