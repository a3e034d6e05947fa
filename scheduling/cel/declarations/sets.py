"""The extension for lists as sets."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function
from scheduling.cel.types import BOOL, list_of, parameter

_LIST = list_of(parameter("T"))

FUNCTIONS: Library = {
    "sets.contains": (function("list_sets_contains_list", _LIST, _LIST, result=BOOL),),
    "sets.equivalent": (function("list_sets_equivalent_list", _LIST, _LIST, result=BOOL),),
    "sets.intersects": (function("list_sets_intersects_list", _LIST, _LIST, result=BOOL),),
}
