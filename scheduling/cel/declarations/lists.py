"""Two libraries for lists: Kubernetes' own, and the extension (third version) that came to it in 1.34."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import COMPARABLE, A, Library, for_each, function, method
from scheduling.cel.types import BOOL, DOUBLE, DURATION, DYN, INT, UINT, list_of, parameter

_SUMMABLE = (("int", INT), ("uint", UINT), ("double", DOUBLE), ("duration", DURATION))
_T = parameter("T")
_LIST = list_of(_T)

KUBERNETES: Library = {
    "isSorted": for_each(COMPARABLE, lambda name, of: method(f"list_{name}_is_sorted_bool", list_of(of), result=BOOL)),
    "sum": for_each(_SUMMABLE, lambda name, of: method(f"list_{name}_sum_{name}", list_of(of), result=of)),
    "max": for_each(COMPARABLE, lambda name, of: method(f"list_{name}_max_{name}", list_of(of), result=of)),
    "min": for_each(COMPARABLE, lambda name, of: method(f"list_{name}_min_{name}", list_of(of), result=of)),
    "indexOf": (method("list_a_index_of_int", list_of(A), A, result=INT),),
    "lastIndexOf": (method("list_a_last_index_of_int", list_of(A), A, result=INT),),
}

INCLUDES: Library = {"includes": (method("list_includes_dyn_dyn", DYN, DYN, result=BOOL),)}
"""Of the second version of Kubernetes' library (1.37), and of devices with list attributes since 1.36."""

EXTENSION: Library = {
    "slice": (method("list_slice", _LIST, INT, INT, result=_LIST),),
    "flatten": (
        method("list_flatten", list_of(_LIST), result=_LIST),
        method("list_flatten_int", list_of(DYN), INT, result=list_of(DYN)),
    ),
    "sort": tuple(method(f"list_{of.name}_sort", list_of(of), result=list_of(of)) for _, of in COMPARABLE),
    "@sortByAssociatedKeys": tuple(
        method(f"list_{of.name}_sortByAssociatedKeys", _LIST, list_of(of), result=_LIST) for _, of in COMPARABLE
    ),
    "lists.range": (function("lists_range", INT, result=list_of(INT)),),
    "reverse": (method("list_reverse", _LIST, result=_LIST),),
    "distinct": (method("list_distinct", _LIST, result=_LIST),),
}
