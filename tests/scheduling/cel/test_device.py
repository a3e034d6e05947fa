from __future__ import annotations

from typing import Any

import pytest

from scheduling.cel.device import CelDevice
from scheduling.cel.errors import EvaluationError
from scheduling.cel.library.quantity import Amount
from scheduling.cel.library.semver import Semver
from tests.making.cel import GPU, program


def test_a_name_without_a_domain_belongs_to_the_driver() -> None:
    device = CelDevice("d.example.com", {"attributes": {"a": {"int": 1}, "e.example.com/b/c": {"int": 2}}})
    assert device.attributes == {"d.example.com": {"a": 1}, "e.example.com": {"b/c": 2}}


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"int": -5}, -5),
        ({"bool": False}, False),
        ({"string": ""}, ""),
        ({"version": "1.2.3"}, Semver(1, 2, 3)),
        ({"ints": [], "string": "x"}, []),
        ({"strings": ["a"]}, ["a"]),
        ({"bools": [True]}, [True]),
        ({"versions": ["1.0.0"]}, [Semver(1, 0, 0)]),
    ],
)
def test_an_attribute_is_the_one_value_it_has(attribute: dict[str, Any], value: object) -> None:
    assert CelDevice("d", {"attributes": {"a": attribute}}).read(("attributes", "d", "a")) == value


def test_capacity_is_a_quantity_in_a_policy_or_not() -> None:
    device = CelDevice("d", {"capacity": {"memory": {"value": "1Gi", "requestPolicy": {"default": "1Mi"}}}})
    amount = device.read(("capacity", "d", "memory"))
    assert isinstance(amount, Amount)
    assert amount.quantity.nanos == 2**30 * 10**9


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ({"attributes": {"v": {"version": "x"}}}, 'attribute v: "x" is not a semantic version'),
        ({"attributes": {"v": {}}}, "attribute v: it has no value of a known kind (int, bool, string, version"),
        ({"attributes": {"v": None}}, "attribute v: it has no value of a known kind"),
        ({"capacity": {"c": {"value": "x"}}}, 'capacity c: "x" is not a quantity'),
    ],
)
def test_an_unsound_device_fails_every_evaluation_and_says_why(device: dict[str, Any], text: str) -> None:
    made = CelDevice("d", device)
    assert text in made.fault
    with pytest.raises(EvaluationError) as raised:
        program("true").evaluate(made)
    assert text in str(raised.value)


def test_reading_beyond_what_is_there_gives_the_default() -> None:
    assert GPU.read(("attributes", "no.example.com", "x"), "none") == "none"
    assert GPU.read(("attributes", "gpu.example.com", "x"), "none") == "none"
    assert GPU.read(("driver", "x"), "none") == "none"
