"""What a request takes of a device's capacity."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.allocator.capacity import (
    CapacityFault,
    DeviceCapacity,
    Unsuitable,
    consumption,
    read_capacity,
    violates,
)
from scheduling.allocator.reading import ObjectReference, Part
from scheduling.api.quantities import parse

OWNER = ObjectReference("ResourceSlice", "one")


def capacity(value: str, **policy: Any) -> DeviceCapacity:
    entry: dict[str, Any] = {"value": value, **({"requestPolicy": policy} if policy else {})}
    return read_capacity(Part(OWNER, {"capacity": {"mem": entry}}, "device"))["mem"]


def taken(requested: str | None, of: DeviceCapacity, *, fractional: bool = True) -> str | Unsuitable:
    """What is taken, as text, or why nothing can be."""
    found = consumption({} if requested is None else {"mem": parse(requested)}, {"mem": of}, fractional)
    return found[0] if isinstance(found, tuple) else found["mem"].text


def test_without_a_policy_the_request_is_taken_and_without_a_request_everything() -> None:
    assert taken("3", capacity("8")) == "3"
    assert taken(None, capacity("8")) == "8"


def test_default_stands_in_for_a_request() -> None:
    assert taken(None, capacity("8", default="2")) == "2"
    assert taken("3", capacity("8", default="2")) == "3"
    assert taken(None, capacity("8", validValues=["2"])) is Unsuitable.POLICY


def test_capacity_that_the_device_does_not_have_makes_it_unsuitable() -> None:
    found = consumption({"nosuch": parse("1")}, {"mem": capacity("8")}, True)
    assert found == (Unsuitable.UNKNOWN, "nosuch")


@pytest.mark.parametrize(
    ("requested", "amount"), [("0", "2"), ("1", "2"), ("2", "2"), ("3", "5"), ("5", "5"), ("6", Unsuitable.POLICY)]
)
def test_request_is_rounded_up_to_the_next_valid_value(requested: str, amount: str | Unsuitable) -> None:
    assert taken(requested, capacity("8", default="5", validValues=["2", "5"])) == amount


@pytest.mark.parametrize(
    ("requested", "amount"),
    [("0", "2"), ("2", "2"), ("3", "4"), ("4", "4"), ("5", "6"), ("6", "6"), ("7", Unsuitable.POLICY)],
)
def test_request_is_rounded_up_to_the_next_step_from_the_minimum(requested: str, amount: str | Unsuitable) -> None:
    assert taken(requested, capacity("8", validRange={"min": "2", "max": "6", "step": "2"})) == amount


def test_range_without_a_step_only_limits() -> None:
    limited = capacity("8", validRange={"min": "2", "max": "6"})
    assert [taken(each, limited) for each in ("1", "3", "6", "7")] == ["2", "3", "6", Unsuitable.POLICY]


def test_default_is_fine_even_outside_of_the_range_but_only_as_it_is_written() -> None:
    limited = capacity("8Gi", default="7Gi", validRange={"min": "1Gi", "max": "6Gi"})
    assert taken(None, limited) == "7Gi"
    assert taken("7Gi", limited) == "7Gi"
    assert taken("7168Mi", limited) is Unsuitable.POLICY
    assert taken("7516192768", limited) is Unsuitable.POLICY


def test_zero_is_an_amount() -> None:
    assert taken("0", capacity("8")) == "0"
    assert taken(None, capacity("8", default="0")) == "0"
    assert taken("0", capacity("0")) == "0"


def test_steps_below_one_unit_need_the_feature() -> None:
    limited = capacity("8", validRange={"min": "500m", "step": "500m"})
    assert taken("600m", limited) == "1"
    assert taken("1200m", limited) == "1500m"
    # Without it every number counts as the next whole one.
    assert taken("1200m", limited, fractional=False) == "2"


@pytest.mark.parametrize(
    ("requested", "policy", "message"),
    [
        ("-1", {}, "capacity mem: the amount -1 is negative"),
        (None, {"default": "-2"}, "capacity mem: the amount -2 is negative"),
        ("3", {"validRange": {"min": "1", "step": "0"}}, "capacity mem: the step of its request policy is 0"),
        (
            "100u",
            {"validRange": {"min": "0", "step": "1m"}},
            "capacity mem: the request 100u is not a whole number of thousandths",
        ),
        (
            "10E",
            {"validRange": {"min": "1n", "step": "1"}},
            "capacity mem: the request 10E is above 2^63-1",
        ),
        (
            "9223372036854775807",
            {"validRange": {"min": "1n", "step": "4"}},
            "capacity mem: rounded up to the next step it is above 2^63-1",
        ),
    ],
)
def test_amount_that_cannot_be_computed_is_named(requested: str | None, policy: dict[str, Any], message: str) -> None:
    with pytest.raises(CapacityFault) as caught:
        taken(requested, capacity("16E", **policy))
    assert str(caught.value) == message


@given(st.integers(0, 60), st.integers(0, 20), st.integers(1, 9), st.integers(0, 60))
def test_amount_is_the_least_step_that_is_enough(requested: int, minimum: int, step: int, room: int) -> None:
    maximum = minimum + room
    limited = capacity("100", validRange={"min": str(minimum), "max": str(maximum), "step": str(step)})
    steps = [each for each in range(minimum, 200, step) if each >= requested]
    expected = str(steps[0]) if steps[0] <= maximum else Unsuitable.POLICY
    assert taken(str(requested), limited) == expected
    assert taken(str(requested), limited, fractional=False) == expected


@given(st.integers(0, 30), st.lists(st.integers(0, 30), min_size=1, max_size=5).map(sorted))
def test_amount_is_the_least_valid_value_that_is_enough(requested: int, values: list[int]) -> None:
    limited = capacity("100", validValues=[str(each) for each in values])
    enough = [each for each in values if each >= requested]
    assert taken(str(requested), limited) == (str(enough[0]) if enough else Unsuitable.POLICY)


@given(st.integers(0, 5000), st.integers(0, 3000), st.integers(1, 900))
def test_thousandths_are_rounded_like_units(requested: int, minimum: int, step: int) -> None:
    in_milli = capacity("100", validRange={"min": f"{minimum}m", "step": f"{step}m"})
    in_units = capacity("100000", validRange={"min": str(minimum), "step": str(step)})
    milli, units = taken(f"{requested}m", in_milli), taken(str(requested), in_units)
    assert isinstance(milli, str)
    assert isinstance(units, str)
    assert parse(milli).nanos * 1000 == parse(units).nanos


@given(st.integers(0, 60), st.integers(0, 20), st.integers(1, 9))
def test_rounded_amount_keeps_the_policy_and_is_not_rounded_again(requested: int, minimum: int, step: int) -> None:
    limited = capacity("100", validRange={"min": str(minimum), "step": str(step)})
    amount = taken(str(requested), limited)
    assert isinstance(amount, str)
    assert not violates(parse(amount), limited.policy, fractional=True)
    assert taken(amount, limited) == amount


def test_capacities_that_are_not_asked_for_are_taken_too() -> None:
    capacities = {"mem": capacity("8"), "cores": capacity("4", default="1")}
    found = consumption({"mem": parse("2")}, capacities, True)
    assert not isinstance(found, tuple)
    assert {name: amount.text for name, amount in found.items()} == {"mem": "2", "cores": "1"}
