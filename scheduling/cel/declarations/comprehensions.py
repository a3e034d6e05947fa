"""What the macros with two variables need: adding to a map. No source can write this name."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function
from scheduling.cel.types import map_of, parameter

_K = parameter("K")
_V = parameter("V")
_MAP = map_of(_K, _V)

FUNCTIONS: Library = {
    "cel.@mapInsert": (
        function("@mapInsert_map_key_value", _MAP, _K, _V, result=_MAP),
        function("@mapInsert_map_map", _MAP, _MAP, result=_MAP),
    ),
}
