"""Maps: what a key is in the dict behind one, and what is found by a key.

Keys of different types are different keys, although Python holds `True`, `1` and `1.0` for the same; looking up goes
by CEL's equality of numbers all the same, as far as cel-go does.
"""

from __future__ import annotations

from math import isfinite

from scheduling.cel.types import CIDR, INT_MAX, INT_MIN, IP, NAMED_FORMAT, SEMVER, UINT_MAX
from scheduling.cel.values import LIST_TYPES, MAP_TYPES, Domains, Opaque, Optional, Stop, Texts, Unsigned, Value


class _Itself:
    """A key that equals nothing but itself: a container."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def map_key(key: Value) -> object:
    """What a key is in the dict behind a map: keys of different types never meet.

    Raises Stop for bytes, versions and formats, which break cel-go's maps.
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    if kind is bytes:
        raise Stop("internal error: bytes cannot be keys")
    if kind in LIST_TYPES or kind in MAP_TYPES or kind is Optional:
        return (kind, _Itself(key))
    if isinstance(key, Opaque):
        if key.cel_type in (SEMVER, NAMED_FORMAT):
            raise Stop(f"internal error: values of type {key.cel_type} cannot be keys")
        return (kind, key if key.cel_type in (IP, CIDR) else _Itself(key))
    return (kind, key)


def unmap_key(stored: object) -> Value:
    """The key that `map_key` made `stored` of."""
    if type(stored) is not tuple:
        return stored
    key: Value = stored[1]
    return key.value if isinstance(key, _Itself) else key


def map_keys(value: Value) -> list[Value]:
    """The keys of a map, in the order of its making."""
    assert isinstance(value, dict)
    return [unmap_key(each) if type(each) is tuple else each for each in value]


_MISSING = object()
_EMPTY: dict[object, Value] = {}


def find(mapping: dict[object, Value], key: Value) -> tuple[bool, Value]:
    """Whether the map has the key, and its value; numbers that are equal find each other, as in cel-go."""
    kind = type(key)
    if kind is str or kind is int:
        value = mapping.get(key, _MISSING)
        if value is not _MISSING:
            return True, value
    if type(mapping) is Domains:
        return True, _EMPTY
    if kind is int:
        value = mapping.get((Unsigned, key), _MISSING)
        return (False, None) if value is _MISSING else (True, value)
    if kind is str or not mapping or type(mapping) is Texts:
        return False, None
    return _find_other(mapping, key)


def integer_keys(number: float) -> list[object]:
    """What the int and the uint that equal a number are in the dict behind a map."""
    if not isfinite(number) or number != int(number):
        return []
    whole = int(number)
    found: list[object] = []
    if INT_MIN < whole <= INT_MAX:  # cel-go does not take a double for the least int
        found.append(whole)
    if 0 <= whole <= UINT_MAX:
        found.append((Unsigned, Unsigned(whole)))
    return found


def _find_other(mapping: dict[object, Value], key: Value) -> tuple[bool, Value]:
    candidates: list[object] = []
    if type(key) not in LIST_TYPES and type(key) not in MAP_TYPES and type(key) is not bytes:
        candidates.append(map_key(key))
    if isinstance(key, float | Unsigned):
        candidates += integer_keys(key)
    for each in candidates:
        value = mapping.get(each, _MISSING)
        if value is not _MISSING:
            return True, value
    return False, None


def has_key(mapping: dict[object, Value], key: Value) -> bool:
    """`key in mapping`: of the domains too, the ones that are there."""
    if type(mapping) is Domains:
        return type(key) is str and key in mapping
    return find(mapping, key)[0]
