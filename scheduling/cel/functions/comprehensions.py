"""What the macros with two variables are made of: inserting into the map that they collect."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.mappings import find, map_key, unmap_key
from scheduling.cel.types import DYN, map_of, parameter
from scheduling.cel.values import Fault, GrowingMap, Value

_Map = dict[object, Value]


def _insert(target: _Map, key: Value, value: Value) -> Value:
    if find(target, key)[0]:
        raise Fault("insert failed: the key already exists")
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


_MAP = map_of(parameter("K"), parameter("V"))

IMPLEMENTATIONS = (
    Implementation("@mapInsert_map_key_value", "cel.@mapInsert", (_MAP, DYN, DYN), _insert),
    Implementation("@mapInsert_map_map", "cel.@mapInsert", (_MAP, _MAP), _insert_all),
)
