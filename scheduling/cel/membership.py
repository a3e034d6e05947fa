"""`x in [1, 2, 3]` with constants: upstream makes a set of the list, which costs nothing to ask.

The set holds for every number all the numbers that equal it, so that asking is one look.
"""

from __future__ import annotations

from scheduling.cel.mappings import integer_keys, map_key
from scheduling.cel.values import Value, elements, is_list


def members_of(entries: Value) -> frozenset[object] | None:
    """What a constant list holds, as keys, numbers as all the numbers they equal; None if it is no set."""
    if not is_list(entries):
        return None
    members: set[object] = set()
    for each in elements(entries):
        if not isinstance(each, bool | int | float | str):
            return None
        members.add(map_key(each))
        if not isinstance(each, str | bool):
            members.update(integer_keys(each))
            members.add(map_key(float(each)))
    return frozenset(members)
