"""Our allocator decides what the real scheduler decides: the same node or none, the same devices, pod after pod.

Worlds are generated. ``OSTLER_WORLDS`` says how many, ``OSTLER_WORLDS_SEED`` which; a failure names the world and shows
its smallest form.
"""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from tests.cluster.scheduler.contest import Played, play, smallest
from tests.cluster.scheduler.live import LiveStage
from tests.cluster.scheduler.world import world

COUNT = int(os.environ.get("OSTLER_WORLDS", "200"))
SEED = int(os.environ.get("OSTLER_WORLDS_SEED", "1"))
SHARE = 25
"""Worlds of one test."""
PATIENCE = 1200
"""Seconds: a difference is made small within the test."""

REACHED = (
    "allNodes", "nodeSelector", "perDeviceNodeSelection", "sharedCounters", "consumesCounters", "taints", "NoExecute",
    "tolerations", "firstAvailable", '"All"', "adminAccess", "matchAttribute", "distinctAttribute", "validValues",
    "validRange", "allowMultipleAllocations", "capacity", "cel.bind", "nosuch", '"generation": 2', '"fake-4"',
)  # fmt: skip

pytestmark = pytest.mark.timeout(PATIENCE)


@pytest.fixture(scope="module")
def decisions() -> Counter[str]:
    """What the scheduler decided in all worlds."""
    return Counter()


@pytest.mark.parametrize("first", range(0, COUNT, SHARE))
def test_scheduler_decides_as_we_do(stage: LiveStage, decisions: Counter[str], first: int) -> None:
    played = Played()
    for number in range(first, min(first + SHARE, COUNT)):
        made = world(SEED, number)
        play(stage, made, played)
        if played.differing:
            small = json.dumps(smallest(stage, made))
            pytest.fail(f"{played.differing[0]}\nOSTLER_WORLDS_SEED={SEED}, made small:\n{small}")
    decisions.update(played.decisions)
    assert played.refused == [], "accepted by scheduling.api.validation, refused by the API server"


def test_worlds_reach_every_feature() -> None:
    text = json.dumps([world(1, number) for number in range(100)])
    assert [word for word in REACHED if word not in text] == []


@pytest.mark.usefixtures("stage")
def test_worlds_are_neither_all_possible_nor_all_impossible(decisions: Counter[str]) -> None:
    """A generator that has become blind agrees with everybody. Runs after the worlds."""
    if COUNT < 200:
        pytest.skip(f"{COUNT} worlds are too few to tell")
    assert decisions["scheduled"] > COUNT / 2, decisions
    assert decisions["Unschedulable"] > COUNT / 2, decisions
    assert decisions["SchedulerError"] > 0, decisions
    assert decisions["timed out"] < COUNT / 50, decisions
