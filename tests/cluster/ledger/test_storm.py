"""Pods of the device plugin and claims that want the same eight GPUs at once."""

from __future__ import annotations

from random import Random

import pytest

from tests.cluster.dra.conftest import DraStage
from tests.cluster.ledger.conftest import BOTH
from tests.cluster.ledger.storm import CLAIM, GPU, NAME, PLUGIN, Storm
from tests.cluster.rig.agent import NodeAgent, wait_allocatable
from tests.cluster.rig.victims import kill

LONG = 600.0
IDLE = 120.0
"""Most seconds that a device may be free while pods wait for it, on a machine that has much else to do.

Who is told of nothing looks again after five minutes, as the scheduler does.
"""


def calm(stage: DraStage) -> NodeAgent:
    """An agent whose devices are at both doors."""
    agent = stage.run_driver("h100-sxm-8", BOTH)
    stage.claims.wait_slices(8)
    wait_allocatable(stage.cluster.api, stage.node, GPU, 8)
    return agent


@pytest.mark.timeout(900)
def test_no_device_is_ever_given_twice_and_every_pod_has_its_turn(stage: DraStage, storm: Storm) -> None:
    calm(stage)
    with storm.watched():
        storm.create(40, Random(8))
        left = storm.wait(LONG)
    outcome = storm.outcome()
    assert not outcome.doubles, outcome
    assert not left, (left, outcome)
    assert outcome.ran >= 40
    assert outcome.idle <= IDLE, outcome


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "victim", ["agent", pytest.param("kubelet", marks=pytest.mark.long), pytest.param("api", marks=pytest.mark.long)]
)
def test_nothing_is_given_twice_though_a_part_is_killed_meanwhile(victim: str, stage: DraStage, storm: Storm) -> None:
    survives(victim, stage, storm, Random(victim))


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("shared_name")
def test_nothing_is_given_twice_where_the_resource_is_at_both_doors_by_name_and_the_agent_is_killed(
    stage: DraStage, storm: Storm
) -> None:
    """The scheduler gives pods that ask by name devices of slices as soon as the plugin has none to give."""
    survives("agent", stage, storm, Random(8), (NAME, CLAIM))


def survives(
    victim: str, stage: DraStage, storm: Storm, random: Random, ways: tuple[str, ...] = (PLUGIN, CLAIM)
) -> None:
    """A storm in which a part is killed twice."""
    agent = calm(stage)
    with storm.watched():
        storm.create(24, random, ways)
        for _ in range(2):
            storm.wait(4)
            kill(victim, stage.cluster, stage.node, agent)
        left = storm.wait(LONG)
    outcome = storm.outcome()
    assert not outcome.doubles, outcome
    assert not left, (left, outcome)
