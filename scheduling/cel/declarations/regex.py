"""Kubernetes' library for regular expressions, beside the specification's `matches`."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, method
from scheduling.cel.types import INT, STRING, list_of

FUNCTIONS: Library = {
    "find": (method("string_find_string", STRING, STRING, result=STRING),),
    "findAll": (
        method("string_find_all_string", STRING, STRING, result=list_of(STRING)),
        method("string_find_all_string_int", STRING, STRING, INT, result=list_of(STRING)),
    ),
}
