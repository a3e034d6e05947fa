"""Generates cases of the allocator, in the format of the vectors."""

from __future__ import annotations

from tests.judge.chance import Chance, Json
from tests.judge.demand import claims, classes
from tests.judge.supply import NODES, Wanted, allocated, node, slices

GATES = (
    "adminAccess",
    "consumableCapacity",
    "deviceBindingAndStatus",
    "deviceTaints",
    "partitionableDevices",
    "prioritizedList",
)
HARMLESS = 0.5
"""Share of cases without anything that an API server would refuse: there the search is what is tested."""


def allocation_case(seed: int, number: int) -> Json:
    """Case `number` of the sequence `seed`: each can be made without those before it."""
    chance = Chance(f"allocation {seed} {number}")
    chance.bend = 0.0 if chance.maybe(HARMLESS) else 1.5
    wanted = Wanted(
        counters=chance.maybe(0.35),
        shares=chance.maybe(0.35),
        taints=chance.maybe(0.25),
        binding=chance.maybe(0.2),
        lists=chance.maybe(0.3),
        nodes=chance.maybe(0.4),
        pools=chance.maybe(0.4),
        modest=chance.maybe(0.6),
        spread=chance.maybe(0.3),
        many=chance.maybe(0.15),
    )
    place = node(chance)
    given = slices(chance, wanted, place["metadata"]["name"])
    more = [node(chance, name) for name in chance.shuffled(NODES)] if wanted.nodes and chance.maybe(0.5) else []
    features = {gate: not chance.oddly(0.03) for gate in GATES}
    features["listTypeAttributes"] = chance.maybe(0.8) if wanted.lists else chance.oddly(0.1)
    # Not in the vectors: steps of capacity below one unit.
    features["fractionalCapacityRange"] = wanted.shares and chance.maybe(0.3)
    return {
        "name": f"generated-{seed}-{number}",
        "themes": ["generated"],
        "features": features,
        "variant": "experimental" if features["listTypeAttributes"] else "incubating",
        "node": place,
        "moreNodes": more,
        "classes": classes(chance),
        "slices": given,
        "claims": claims(chance, wanted),
        "allocated": allocated(chance, wanted, given),
    }
