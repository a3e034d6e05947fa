"""Kubernetes' library for quantities."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING

FUNCTIONS: Library = {
    "quantity": (function("string_to_quantity", STRING, result=QUANTITY),),
    "isQuantity": (function("is_quantity_string", STRING, result=BOOL),),
    "sign": (function("quantity_sign", QUANTITY, result=INT),),
    "isGreaterThan": (method("quantity_is_greater_than", QUANTITY, QUANTITY, result=BOOL),),
    "isLessThan": (method("quantity_is_less_than", QUANTITY, QUANTITY, result=BOOL),),
    "compareTo": (method("quantity_compare_to", QUANTITY, QUANTITY, result=INT),),
    "asApproximateFloat": (method("quantity_get_float", QUANTITY, result=DOUBLE),),
    "asInteger": (method("quantity_get_int", QUANTITY, result=INT),),
    "isInteger": (method("quantity_is_integer", QUANTITY, result=BOOL),),
    "add": (
        method("quantity_add", QUANTITY, QUANTITY, result=QUANTITY),
        method("quantity_add_int", QUANTITY, INT, result=QUANTITY),
    ),
    "sub": (
        method("quantity_sub", QUANTITY, QUANTITY, result=QUANTITY),
        method("quantity_sub_int", QUANTITY, INT, result=QUANTITY),
    ),
}
