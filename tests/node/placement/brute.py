"""The rule of placement written down a second time, for sets instead of masks: every set is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from node.topology.model import Cell, Topology
from node.topology.packing import pair_score

Key = tuple[object, ...]


def cells(root: Cell) -> Iterator[Cell]:
    yield root
    for child in root.children:
        yield from cells(child)


def best(
    topology: Topology,
    free: Mapping[str, int],
    required: Mapping[str, int],
    size: int,
    far: Mapping[str, int],
    *,
    others: Mapping[str, int] | None = None,
) -> frozenset[str]:
    """The GPUs to take ``size`` units from; ``free`` and ``required`` by GPU, the required ones counted in both.

    ``far`` by GPU; ``others``: by GPU the units that another door has.
    """
    ours = {name: count + (others or {}).get(name, 0) for name, count in free.items()}
    assert topology.root is not None
    usable = [name for name in leaves(topology.root) if free.get(name)]
    sets = (frozenset(chosen) for count in range(1, len(usable) + 1) for chosen in combinations(usable, count))
    possible = (
        chosen
        for chosen in sets
        if {name for name, count in required.items() if count} <= chosen and sum(free[name] for name in chosen) >= size
    )
    return min(possible, key=lambda chosen: key(topology, free, required, chosen, size, far=far, ours=ours))


def key(
    topology: Topology,
    free: Mapping[str, int],
    required: Mapping[str, int],
    chosen: frozenset[str],
    size: int,
    *,
    far: Mapping[str, int],
    ours: Mapping[str, int],
) -> Key:
    root = topology.root
    assert root is not None
    around = sorted((cell for cell in cells(root) if chosen <= set(cell.gpus)), key=lambda cell: len(cell.gpus))
    counts = [sum(ours.get(name, 0) for name in cell.gpus) for cell in around]
    deep = len(topology.places) + 1
    usable = {name for name in root.gpus if ours.get(name)}
    return (
        len(around[0].gpus),
        distance(around[0].gpus, free, required, size, far),
        counts + [counts[-1]] * (deep - len(counts)),
        len(chosen),
        sum(ours[name] for name in chosen) - size,
        -score(topology, chosen),
        sum(far[name] for name in chosen),
        score(topology, usable) - score(topology, usable - chosen),
        sorted(leaves(root).index(name) for name in chosen),
    )


def distance(
    gpus: Iterable[str], free: Mapping[str, int], required: Mapping[str, int], size: int, far: Mapping[str, int]
) -> int:
    """The least of all ways to take ``size`` units."""
    rest = sorted(far[name] for name in gpus for _ in range(free.get(name, 0) - required.get(name, 0)))
    return sum(far[name] * count for name, count in required.items()) + sum(rest[: size - sum(required.values())])


def score(topology: Topology, names: Iterable[str]) -> int:
    places = [place for place in topology.places if place.name in set(names)]
    return sum(pair_score(a, b) for a, b in combinations(places, 2))


def leaves(root: Cell) -> list[str]:
    return [name for cell in cells(root) if not cell.children for name in cell.gpus]
