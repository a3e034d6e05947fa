"""Kubernetes' library of quantities: `quantity`, `isQuantity`, arithmetic, order, conversions.

An expression of Kubernetes can tell a sum or difference from a quantity that was read: on the right side of `==` a
computed one is an error. `Amount.computed` keeps that apart. Not followed: comparing with a quantity beyond 64 bits
also makes the other one lose its being an integer there, for the rest of the evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scheduling.api.quantities import Format, Quantity, QuantityError, from_int, parse
from scheduling.cel.library.function import Library, function, is_readable, method, reader
from scheduling.cel.library.prices import READS_TEXT
from scheduling.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING, Type
from scheduling.cel.values import CelFault, Opaque, Value, no_such_overload


@dataclass(frozen=True, slots=True)
class Amount(Opaque):
    """A quantity as a value of CEL; `computed` by `add` or `sub`."""

    cel_type: ClassVar[Type] = QUANTITY

    quantity: Quantity
    computed: bool = False

    def cel_equal(self, other: Value) -> bool:
        """Whether the numbers are equal. Raises CelFault for a computed quantity on the right side."""
        if not isinstance(other, Amount) or other.computed:
            raise no_such_overload()
        return self.quantity == other.quantity


def _integer(amount: Amount) -> Value:
    value = amount.quantity.as_int64()
    if value is None:
        raise CelFault(f"quantity {amount.quantity.text} cannot be converted to an integer")
    return value


def _exact(number: int) -> Quantity:
    return from_int(number, Format.DECIMAL_EXPONENT)


def _float(amount: Amount) -> Value:
    return amount.quantity.as_approximate_float()


def _computed(quantity: Quantity) -> Amount:
    return Amount(quantity, computed=True)


def _read(text: str) -> Amount:
    return Amount(parse(text))


_Q = QUANTITY
_IS_QUANTITY = is_readable(_read, QuantityError)

LIBRARY: Library = (
    function("quantity", "string_to_quantity", STRING, result=_Q, call=reader(_read, QuantityError), price=READS_TEXT),
    function("isQuantity", "is_quantity_string", STRING, result=BOOL, call=_IS_QUANTITY, price=READS_TEXT),
    function("sign", "quantity_sign", _Q, result=INT, call=lambda amount: amount.quantity.sign),
    method("isGreaterThan", "quantity_is_greater_than", _Q, _Q, result=BOOL, call=lambda a, b: a.quantity > b.quantity),
    method("isLessThan", "quantity_is_less_than", _Q, _Q, result=BOOL, call=lambda a, b: a.quantity < b.quantity),
    method("compareTo", "quantity_compare_to", _Q, _Q, result=INT, call=lambda a, b: a.quantity.compare(b.quantity)),
    method("asApproximateFloat", "quantity_get_float", _Q, result=DOUBLE, call=_float),
    method("asInteger", "quantity_get_int", _Q, result=INT, call=_integer),
    method("isInteger", "quantity_is_integer", _Q, result=BOOL, call=lambda amount: amount.quantity.is_integer),
    method("add", "quantity_add", _Q, _Q, result=_Q, call=lambda a, b: _computed(a.quantity + b.quantity)),
    method("add", "quantity_add_int", _Q, INT, result=_Q, call=lambda a, n: _computed(a.quantity + _exact(n))),
    method("sub", "quantity_sub", _Q, _Q, result=_Q, call=lambda a, b: _computed(a.quantity - b.quantity)),
    method("sub", "quantity_sub_int", _Q, INT, result=_Q, call=lambda a, n: _computed(a.quantity - _exact(n))),
)
