"""Whether demands can be met from a common stock, each from its own part of it.

Hall's marriage condition, decided as a flow: a demand is a number of different places out of a set of them; a place
serves one demand or, if it says so, several. Sets are bit masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Demand = tuple[int, int]
"""How many places, and the mask of those that will do."""

_ATOMS_MAX = 200
"""Pieces that are looked at; with more the answer is that nothing stands in the way."""


def can_be_met(demands: Sequence[Demand], room: Mapping[int, int]) -> bool:
    """Whether all demands can be met at once; True as well where that would take too long to tell.

    `room`: place -> how many demands it serves, for places that do not serve just one.
    """
    if any(places.bit_count() < count for count, places in demands):
        return False
    ordered = sorted(demands, key=lambda demand: demand[1].bit_count())
    so_far = 0
    for count, places in ordered:
        so_far += count
        if so_far > places.bit_count():
            break
    else:
        # Served in this order, each demand finds enough places left over by those before it.
        return not room or _Flow(ordered, room).saturated()
    return _Flow(ordered, room).saturated()


class _Flow:
    """A maximum flow from demands to atoms: places that the same demands want, taken together."""

    def __init__(self, demands: Sequence[Demand], room: Mapping[int, int]) -> None:
        self._demands = demands
        self._atoms = _atoms([places for _, places in demands], room)
        alone = [each.bit_length() - 1 in room for each in self._atoms]
        sizes = [each.bit_count() for each in self._atoms]
        self._room = [
            room[atom.bit_length() - 1] if one else size
            for atom, one, size in zip(self._atoms, alone, sizes, strict=True)
        ]
        self._most = sizes  # what one demand can have of an atom
        self._served: list[dict[int, int]] = [{} for _ in self._atoms]  # per atom: demand -> number of places

    def saturated(self) -> bool:
        """Whether every demand gets all it wants."""
        if len(self._atoms) > _ATOMS_MAX:
            return True
        return all(self._serve(number, set()) for number, (count, _) in enumerate(self._demands) for _ in range(count))

    def _serve(self, number: int, tried: set[int]) -> bool:
        """Give one more place to a demand, if need be by moving others to other atoms."""
        wanted = self._demands[number][1]
        for index, atom in enumerate(self._atoms):
            served = self._served[index]
            if index in tried or not atom & wanted or served.get(number, 0) >= self._most[index]:
                continue
            tried.add(index)
            if sum(served.values()) < self._room[index]:
                served[number] = served.get(number, 0) + 1
                return True
            for other in [each for each, places in served.items() if places and each != number]:
                if self._serve(other, tried):
                    served[other] -= 1
                    served[number] = served.get(number, 0) + 1
                    return True
        return False


def _atoms(sets: Sequence[int], apart: Mapping[int, int]) -> list[int]:
    """The sets cut into pieces that no set cuts again; places that are `apart` are pieces of their own."""
    everything = 0
    for each in sets:
        everything |= each
    own = [1 << place for place in apart if everything >> place & 1]
    rest = everything & ~sum(own)
    pieces = [rest] if rest else []
    for each in sets:
        pieces = [part for piece in pieces for part in (piece & each, piece & ~each) if part]
    return own + pieces
