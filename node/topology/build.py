"""From places to a topology: overrides applied, the cell tree built. Once per snapshot, from memory alone."""

from __future__ import annotations

from collections.abc import Iterable

from node.topology.cells import cell_tree
from node.topology.model import Place, PlaceOverride, Topology
from node.values import replace


def topology_of(
    places: Iterable[Place], overrides: Iterable[PlaceOverride] = (), previous: Topology | None = None
) -> Topology:
    """The topology of these places, which keep their order; an override for an address that is not here is left out.

    ``previous``: the topology before, which is given back where nothing has moved.
    """
    moved = {override.address: override for override in overrides}
    everyone = tuple(_overridden(place, moved.get(place.address or "")) for place in places)
    present = {place.address for place in everyone}
    overridden = tuple(sorted(address for address in moved if address in present))
    if previous is not None and everyone == previous.places and overridden == previous.overridden:
        return previous
    return Topology(everyone, cell_tree(everyone), overridden)


def absent(places: Iterable[Place], overrides: Iterable[PlaceOverride]) -> tuple[str, ...]:
    """Addresses that overrides name and no place has: worth a remark, since one may be misspelt."""
    present = {place.address for place in places}
    return tuple(sorted({override.address for override in overrides} - {address for address in present if address}))


def _overridden(place: Place, override: PlaceOverride | None) -> Place:
    if override is None:
        return place
    numa = place.numa_node if override.numa_node is None else override.numa_node
    return replace(place, path=override.path, numa_node=numa)
