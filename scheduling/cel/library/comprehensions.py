"""The library of the macros with two variables: it inserts into the map that they collect.

No source can write its name.
"""

from __future__ import annotations

from scheduling.cel.library.function import Library, function
from scheduling.cel.relations import find, map_key, unmap_key
from scheduling.cel.types import map_of, parameter
from scheduling.cel.values import CelFault, GrowingMap, Value

_Map = dict[object, Value]


def _insert(target: _Map, key: Value, value: Value) -> Value:
    if find(target, key)[0]:
        raise CelFault("insert failed: the key already exists")
    if type(target) is not GrowingMap:
        target = dict(target)
    target[map_key(key)] = value
    return target


def _insert_all(target: _Map, entries: _Map) -> Value:
    for stored, value in entries.items():
        inserted = _insert(target, unmap_key(stored), value)
        assert isinstance(inserted, dict)
        target = inserted
    return target


_K = parameter("K")
_V = parameter("V")
_MAP = map_of(_K, _V)

LIBRARY: Library = (
    function("cel.@mapInsert", "@mapInsert_map_key_value", _MAP, _K, _V, result=_MAP, call=_insert),
    function("cel.@mapInsert", "@mapInsert_map_map", _MAP, _MAP, result=_MAP, call=_insert_all),
)
