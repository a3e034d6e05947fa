"""The extension for optional values."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import BOOL, DYN, INT, STRING, list_of, map_of, optional_of, parameter

_K = parameter("K")
_V = parameter("V")
_OPTIONAL = optional_of(_V)
_LIST = list_of(_V)
_MAP = map_of(_K, _V)

FUNCTIONS: Library = {
    "optional.of": (function("optional_of", _V, result=_OPTIONAL),),
    "optional.ofNonZeroValue": (function("optional_ofNonZeroValue", _V, result=_OPTIONAL),),
    "optional.none": (function("optional_none", result=_OPTIONAL),),
    "optional.unwrap": (function("optional_unwrap", list_of(_OPTIONAL), result=_LIST),),
    "unwrapOpt": (method("optional_unwrapOpt", list_of(_OPTIONAL), result=_LIST),),
    "value": (method("optional_value", _OPTIONAL, result=_V),),
    "hasValue": (method("optional_hasValue", _OPTIONAL, result=BOOL),),
    "or": (method("optional_or_optional", _OPTIONAL, _OPTIONAL, result=_OPTIONAL),),
    "orValue": (method("optional_orValue_value", _OPTIONAL, _V, result=_V),),
    "first": (method("list_first", _LIST, result=_OPTIONAL),),
    "last": (method("list_last", _LIST, result=_OPTIONAL),),
    "_?._": (function("select_optional_field", DYN, STRING, result=_OPTIONAL),),
    "_[?_]": (
        function("list_optindex_optional_int", _LIST, INT, result=_OPTIONAL),
        function("optional_list_optindex_optional_int", optional_of(_LIST), INT, result=_OPTIONAL),
        function("map_optindex_optional_value", _MAP, _K, result=_OPTIONAL),
        function("optional_map_optindex_optional_value", optional_of(_MAP), _K, result=_OPTIONAL),
    ),
    "_[_]": (
        function("optional_list_index_int", optional_of(_LIST), INT, result=_OPTIONAL),
        function("optional_map_index_value", optional_of(_MAP), _K, result=_OPTIONAL),
    ),
}
