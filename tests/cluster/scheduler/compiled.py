"""Worlds with one pod whose claim was compiled from a need of pools, and the devices that it was promised."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, Phase, given, seed, settings

from scheduling.allocator.pools import SliceIndex
from scheduling.allocator.reading import FatalError
from scheduling.api.versions import with_defaults
from scheduling.pools.claim_writer import CompilerInput
from scheduling.pools.compiler import claim_of, compile_claim
from scheduling.pools.conversion import convert
from scheduling.pools.lost import LeftOut
from scheduling.pools.matching import MatchingError
from tests.cluster.scheduler.world import ROUND
from tests.judge.chance import Json
from tests.making.pool_documents import DRIVER
from tests.scheduling.pools.round_trips import NIC, NODE, PoolCase, cases, with_flat_root

DRAWN = 10
"""Cases that are drawn for each that makes a world: most needs cannot be met, or not be said."""
HERE, THERE = "fake-1", "fake-2"


class _Enough(Exception):
    """There are as many worlds as were asked for: drawing more takes as long as drawing those."""


@dataclass(frozen=True)
class PromisedWorld:
    """A world in the form of ``world``, and pool and name of each device that its pod's claim was promised."""

    world: Json
    devices: list[tuple[str, str]]


def promised_worlds(number: int, count: int) -> list[PromisedWorld]:
    """So many worlds by this seed."""
    found: list[PromisedWorld] = []

    @seed(number)
    @settings(
        max_examples=count * DRAWN,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def draw(case: PoolCase) -> None:
        if len(found) == count:
            raise _Enough
        made = _promised(case, len(found))
        if made is not None:
            found.append(made)

    with contextlib.suppress(_Enough):
        draw()
    return found


def _promised(case: PoolCase, number: int) -> PromisedWorld | None:
    case = replace(case, claims=case.claims[:1], others=())
    published = [each for each in convert(case.pools).objects if each["kind"] == "ResourceSlice"]
    index = SliceIndex(with_defaults(each) for each in published)
    try:
        cluster = CompilerInput.of(index, written=case.classes, nodes=[{"metadata": {"name": NODE}}])
        compiled = compile_claim(with_flat_root(case.claims[0]), cluster, [NODE])
    except (LeftOut, MatchingError, FatalError):
        return None
    if compiled.node is None:
        return None
    claim = claim_of(compiled.template, f"claim-{ROUND}")
    world = {
        "name": f"compiled-{number}",
        "slices": published,
        "classes": list(cluster.made_classes),
        "pods": [{"name": "pod", "node": NODE, "claims": [claim]}],
    }
    devices = [(f"{each.pool}-{ROUND}", each.device) for each in compiled.devices]
    return PromisedWorld(_named(world), devices)


def _named(world: Json) -> Json:
    """The world with names of its round, on the nodes that there are; the order of names stays."""
    for each in world["slices"]:
        each["metadata"]["name"] += f"-{ROUND}"
        each["spec"]["pool"]["name"] += f"-{ROUND}"
    for each in world["classes"]:
        each["metadata"]["name"] += f"-{ROUND}"
    text = json.dumps(world)
    for driver in (DRIVER, NIC):
        kind, _, rest = driver.partition(".")
        text = text.replace(driver, f"{kind}-{ROUND}.{rest}")
    text = text.replace(f'"{NODE}"', f'"{HERE}"').replace('"node-2"', f'"{THERE}"')
    named: Json = json.loads(text)
    for claim in named["pods"][0]["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            for each in request.get("firstAvailable") or [request["exactly"]]:
                each["deviceClassName"] += f"-{ROUND}"
    return named
