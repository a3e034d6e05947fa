from __future__ import annotations

import pytest

from scheduling.api.quantities import parse
from scheduling.cel.library.quantity import Amount
from scheduling.cel.values import CelFault
from tests.making.cel import CALLS


def test_a_text_is_read() -> None:
    assert CALLS["string_to_quantity"]("1Gi") == Amount(parse("1Gi"))
    assert CALLS["is_quantity_string"]("1Gi") is True
    assert CALLS["is_quantity_string"]("1GB") is False
    with pytest.raises(
        CelFault, match='"1GB" is not a quantity: it must be a number and, without a space, a suffix: n u m k M G'
    ):
        CALLS["string_to_quantity"]("1GB")


def test_quantities_are_compared() -> None:
    one, other = Amount(parse("1")), Amount(parse("1001m"))
    assert CALLS["quantity_is_greater_than"](other, one) is True
    assert CALLS["quantity_is_less_than"](other, one) is False
    assert CALLS["quantity_compare_to"](one, other) == -1
    assert CALLS["quantity_sign"](one) == 1


def test_quantities_are_converted() -> None:
    amount = Amount(parse("2k"))
    assert CALLS["quantity_get_int"](amount) == 2000
    assert CALLS["quantity_get_float"](amount) == 2000.0
    assert CALLS["quantity_is_integer"](amount) is True
    with pytest.raises(CelFault, match="quantity 1500m cannot be converted to an integer"):
        CALLS["quantity_get_int"](Amount(parse("1.5")))


def test_quantities_are_added_to_quantities_and_ints() -> None:
    amount = Amount(parse("5"))
    assert CALLS["quantity_add"](amount, amount).quantity == parse("10")
    assert CALLS["quantity_sub"](amount, amount).quantity == parse("0")
    assert CALLS["quantity_add_int"](amount, 3).quantity == parse("8")
    assert CALLS["quantity_sub_int"](amount, 6).quantity == parse("-1")


def test_a_computed_quantity_equals_only_from_the_left() -> None:
    two, computed = Amount(parse("2")), CALLS["quantity_add_int"](Amount(parse("1")), 1)
    assert computed.cel_equal(two)
    for left in (two, computed):
        with pytest.raises(CelFault, match="no such overload"):
            left.cel_equal(computed)
    with pytest.raises(CelFault, match="no such overload"):
        two.cel_equal("2")
