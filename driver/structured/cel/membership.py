"""`x in [1, 2, 3]` with constants: upstream makes a set of the list, which costs nothing to ask.

The set holds for every number all the numbers that equal it, so that asking is one look.
"""

from __future__ import annotations

from driver.structured.cel.mappings import map_key
from driver.structured.cel.values import Unsigned, Value, elements, is_list

_PRIMITIVE = (bool, int, Unsigned, float, str)


def members_of(entries: Value) -> frozenset[object] | None:
    """What a constant list holds, as keys, numbers as all the numbers they equal; None if it is no set."""
    if not is_list(entries):
        return None
    members: set[object] = set()
    for each in elements(entries):
        if type(each) not in _PRIMITIVE:
            return None
        members.add(map_key(each))
        if not isinstance(each, bool) and isinstance(each, int | float):
            members.update(_equal_numbers(each))
    return frozenset(members)


def _equal_numbers(number: Value) -> list[object]:
    found: list[object] = []
    if isinstance(number, float):
        if number != number or abs(number) >= 2.0**64 or number != int(number):  # noqa: PLR0124 - NaN
            return []
        whole = int(number)
        if -(2**63) < whole < 2**63:
            found.append(whole)
        if whole >= 0:
            found.append(map_key(Unsigned(whole)))
        return found
    assert isinstance(number, int)
    found.append(map_key(float(number)))
    if type(number) is Unsigned:
        if number < 2**63:
            found.append(int(number))
    elif number >= 0:
        found.append(map_key(Unsigned(number)))
    return found
