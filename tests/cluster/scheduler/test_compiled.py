"""The real scheduler gives a compiled claim the devices that `ostler pools claim` promised, on generated clusters.

``OSTLER_WORLDS`` says how many, ``OSTLER_WORLDS_SEED`` which.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.cluster.scheduler.compiled import HERE, PromisedWorld, promised_worlds
from tests.cluster.scheduler.live import LiveStage
from tests.cluster.scheduler.world import ROUND

COUNT = int(os.environ.get("OSTLER_WORLDS", "200"))
SEED = int(os.environ.get("OSTLER_WORLDS_SEED", "1"))
SHARE = 50
"""Worlds of one test."""

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def worlds() -> list[PromisedWorld]:
    """All worlds of this file."""
    return promised_worlds(SEED, COUNT)


@pytest.mark.parametrize("first", range(0, COUNT, SHARE))
def test_a_compiled_claim_gets_what_was_promised(stage: LiveStage, worlds: list[PromisedWorld], first: int) -> None:
    for each in worlds[first : first + SHARE]:
        world = stage.fresh(each.world)
        promised = stage.fresh_names(each.devices)
        laid = stage.lay(world)
        try:
            assert laid.refused == []
            (claim,) = laid.claims
            decision = stage.schedule(f"{claim}-pod", [claim], HERE)
            said = f"{decision.message}\n{json.dumps(world)}"
            assert decision.node == HERE, said
            results = decision.claims[0]["status"]["allocation"]["devices"]["results"]
            assert [(one["pool"], one["device"]) for one in results] == promised, said
        finally:
            stage.clear()


def test_there_are_enough_worlds(worlds: list[PromisedWorld]) -> None:
    assert len(worlds) == COUNT
    text = json.dumps([each.world for each in worlds])
    assert [word for word in ("firstAvailable", "matchAttribute", "capacity", ROUND) if word not in text] == []
