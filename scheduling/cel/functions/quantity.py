"""The functions of quantities: `quantity`, `isQuantity`, arithmetic, order, conversions.

An expression of Kubernetes can tell a sum or difference from a quantity that was read: on the right side of `==` a
computed one is an error. `Amount.computed` keeps that apart. Not followed: comparing with a quantity beyond 64 bits
also makes the other one lose its being an integer there, for the rest of the evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scheduling.api.quantities import Format, Quantity, QuantityError, from_int, parse
from scheduling.cel.functions.registry import Implementation
from scheduling.cel.types import INT, QUANTITY, STRING, Type
from scheduling.cel.values import Fault, Opaque, Value, no_such_overload


@dataclass(frozen=True, slots=True)
class Amount(Opaque):
    """A quantity as a value of CEL; `computed` by `add` or `sub`."""

    cel_type: ClassVar[Type] = QUANTITY

    quantity: Quantity
    computed: bool = False

    def cel_equal(self, other: Value) -> bool:
        """Whether the numbers are equal. Raises Fault for a computed quantity on the right side."""
        if not isinstance(other, Amount) or other.computed:
            raise no_such_overload()
        return self.quantity == other.quantity


def _read(text: str) -> Value:
    try:
        return Amount(parse(text))
    except QuantityError as error:
        raise Fault(str(error)) from error


def _is_quantity(text: str) -> Value:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _integer(amount: Amount) -> Value:
    value = amount.quantity.as_int64()
    if value is None:
        raise Fault(f"quantity {amount.quantity.text} cannot be converted to an integer")
    return value


def _add(amount: Amount, other: Amount) -> Value:
    return Amount(amount.quantity + other.quantity, computed=True)


def _subtract(amount: Amount, other: Amount) -> Value:
    return Amount(amount.quantity - other.quantity, computed=True)


def _add_int(amount: Amount, number: int) -> Value:
    return Amount(amount.quantity + from_int(number, Format.DECIMAL_EXPONENT), computed=True)


def _subtract_int(amount: Amount, number: int) -> Value:
    return Amount(amount.quantity - from_int(number, Format.DECIMAL_EXPONENT), computed=True)


_ONE = (QUANTITY,)
_TWO = (QUANTITY, QUANTITY)

IMPLEMENTATIONS = (
    Implementation("string_to_quantity", "quantity", (STRING,), _read),
    Implementation("is_quantity_string", "isQuantity", (STRING,), _is_quantity),
    Implementation("quantity_sign", "sign", _ONE, lambda amount: amount.quantity.sign),
    Implementation("quantity_is_greater_than", "isGreaterThan", _TWO, lambda one, other: one.quantity > other.quantity),
    Implementation("quantity_is_less_than", "isLessThan", _TWO, lambda one, other: one.quantity < other.quantity),
    Implementation("quantity_compare_to", "compareTo", _TWO, lambda one, other: one.quantity.compare(other.quantity)),
    Implementation(
        "quantity_get_float", "asApproximateFloat", _ONE, lambda amount: amount.quantity.as_approximate_float()
    ),
    Implementation("quantity_get_int", "asInteger", _ONE, _integer),
    Implementation("quantity_is_integer", "isInteger", _ONE, lambda amount: amount.quantity.is_integer),
    Implementation("quantity_add", "add", _TWO, _add),
    Implementation("quantity_add_int", "add", (QUANTITY, INT), _add_int),
    Implementation("quantity_sub", "sub", _TWO, _subtract),
    Implementation("quantity_sub_int", "sub", (QUANTITY, INT), _subtract_int),
)
