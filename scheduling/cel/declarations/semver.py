"""Kubernetes' library for semantic versions, with the switch that normalises them first."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import BOOL, INT, SEMVER, STRING

FUNCTIONS: Library = {
    "semver": (
        function("string_to_semver", STRING, result=SEMVER),
        function("string_bool_to_semver", STRING, BOOL, result=SEMVER),
    ),
    "isSemver": (
        function("is_semver_string", STRING, result=BOOL),
        function("is_semver_string_bool", STRING, BOOL, result=BOOL),
    ),
    "isGreaterThan": (method("semver_is_greater_than", SEMVER, SEMVER, result=BOOL),),
    "isLessThan": (method("semver_is_less_than", SEMVER, SEMVER, result=BOOL),),
    "compareTo": (method("semver_compare_to", SEMVER, SEMVER, result=INT),),
    "major": (method("semver_major", SEMVER, result=INT),),
    "minor": (method("semver_minor", SEMVER, result=INT),),
    "patch": (method("semver_patch", SEMVER, result=INT),),
}
