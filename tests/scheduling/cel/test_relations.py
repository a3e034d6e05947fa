from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.api.quantities import parse
from scheduling.cel.library.quantity import Amount
from scheduling.cel.relations import compare, equal, find, has_key, map_key, map_keys, unmap_key
from scheduling.cel.types import INT_MAX, INT_MIN, UINT_MAX
from scheduling.cel.values import (
    NONE,
    CelFault,
    Domains,
    Duration,
    Joined,
    Optional,
    Stop,
    Texts,
    Timestamp,
    Unsigned,
    Value,
    elements,
)

INTS = st.integers(INT_MIN, INT_MAX)
NUMBERS = st.one_of(INTS, st.integers(0, UINT_MAX).map(Unsigned), st.floats())
SCALARS = st.one_of(NUMBERS, st.booleans(), st.text(), st.binary(), st.none())
KEYS = st.one_of(INTS, st.integers(0, UINT_MAX).map(Unsigned), st.booleans(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(KEYS.map(map_key), inner),
        inner.map(Optional),
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_equality_is_symmetric(left: Value, right: Value) -> None:
    assert equal(left, right) == equal(right, left)


@given(VALUES)
def test_a_value_equals_itself_unless_a_nan_is_in_it(value: Value) -> None:
    assert equal(value, value) or "nan" in repr(value)


@given(NUMBERS, NUMBERS)
def test_order_and_equality_of_numbers_agree(left: float, right: float) -> None:
    if math.isnan(left) or math.isnan(right):
        with pytest.raises(CelFault, match="NaN values cannot be ordered"):
            compare(left, right)
        assert not equal(left, right)
    else:
        assert compare(left, right) == -compare(right, left)
        assert (compare(left, right) == 0) == equal(left, right)


@given(st.dictionaries(KEYS.map(map_key), st.integers()))
def test_every_key_finds_its_value_and_no_other_type_shares_it(mapping: dict[object, Value]) -> None:
    assert [map_key(each) for each in map_keys(mapping)] == list(mapping)
    for stored, value in mapping.items():
        assert find(mapping, unmap_key(stored)) == (True, value)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        (1, True, False),
        (1, 1.0, True),
        (1, Unsigned(1), True),
        (2**53 + 1, float(2**53), True),
        (None, 0, False),
        ("1", 1, False),
        ([1, [2]], [1.0, [Unsigned(2)]], True),
        ({"a": 1}, {"a": 1.0}, True),
        (NONE, Optional(None), False),
        (Duration(5), Duration(5), True),
        (Timestamp(5, 3600), Timestamp(5), True),
    ],
)
def test_equality_looks_at_types_as_cel_does(left: Value, right: Value, wanted: bool) -> None:
    assert equal(left, right) is wanted


def test_comparing_a_quantity_with_something_else_is_an_error_but_not_inside_a_list() -> None:
    amount = Amount(parse("1"))
    with pytest.raises(CelFault, match="no such overload"):
        equal(amount, 1)
    assert equal([amount], [1])


@pytest.mark.parametrize(
    ("left", "right"), [(1, "1"), (True, 1), (None, None), ([1], [2]), (Duration(1), Timestamp(1))]
)
def test_values_without_an_order_are_an_error(left: Value, right: Value) -> None:
    with pytest.raises(CelFault, match="no such overload"):
        compare(left, right)


def test_numbers_find_each_other_as_keys() -> None:
    mapping: dict[object, Value] = {map_key(key): str(int(key)) for key in (1, Unsigned(2))}
    assert find(mapping, 1.0) == (True, "1")
    assert find(mapping, Unsigned(1)) == (True, "1")
    assert find(mapping, 2) == (True, "2")
    assert find(mapping, True) == (False, None)
    assert find(mapping, math.nan) == (False, None)
    assert find({map_key(1.5): 1}, 1.5) == (True, 1)


def test_an_unknown_domain_is_found_but_not_in_the_map() -> None:
    domains = Domains(a=Texts(x=1))
    assert find(domains, "b") == (True, {})
    assert has_key(domains, "a")
    assert not has_key(domains, "b")
    assert not has_key(domains, 1)


def test_bytes_cannot_be_keys_and_lists_are_keys_by_identity() -> None:
    with pytest.raises(Stop, match="bytes cannot be keys"):
        map_key(b"a")
    one: list[Value] = [1]
    assert map_key(one) == map_key(one)
    assert map_key(one) != map_key([1])


@given(st.lists(st.lists(st.integers()), min_size=2, max_size=6))
def test_a_view_of_lists_has_their_elements(parts: list[list[int]]) -> None:
    joined: Value = parts[0]
    size = len(parts[0])
    for part in parts[1:]:
        size += len(part)
        joined = Joined(joined, part, size)
    assert elements(joined) == [each for part in parts for each in part]
