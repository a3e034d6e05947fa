"""GPUs whole and in shares, through both doors at once: what pods have of one is never more than all of it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.cluster.dra.claims import TEMPLATES
from tests.cluster.dra.conftest import Stage
from tests.cluster.ledger.overlaps import Watcher
from tests.cluster.ledger.sharing_storm import REPLICAS, SHARED, SHARES, SharingStorm, Wish, resources
from tests.cluster.ledger.storm import GPU, Storm
from tests.cluster.ledger.test_forced import DEVICES, show
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.pods import PODS
from tests.cluster.rig.victims import VICTIMS, kill


def rage(stage: Stage, storm: Storm, wishes: tuple[Wish, ...], random: Random, pods: int, *victims: str) -> None:
    """A storm of so many pods, with a look at all containers every 20 ms."""
    agent = stage.run_driver("h100-sxm-8", *resources(partitions=False))
    stage.claims.wait_slices(8)
    wait_allocatable(stage.cluster.api, stage.node, SHARED, 3 * REPLICAS)
    wait_allocatable(stage.cluster.api, stage.node, GPU, 5)
    storming = SharingStorm(
        stage.cluster.api,
        stage.node,
        storm,
        random,
        lambda victim: kill(victim, stage.cluster, stage.node, agent),
        wishes=wishes,
    )
    for one in storming.templates():
        stage.cluster.api.create(TEMPLATES, one)
    with Watcher(stage.node, DEVICES) as watcher:
        storming.rage(pods, victims)
    seen = watcher.report
    show(storming, seen)
    assert not seen.overlaps, seen.overlaps
    assert seen.pods >= pods / 3, "hardly a container was seen"
    assert storming.ended["forced"] >= pods / 10, "hardly a pod was deleted by force"


@pytest.fixture
def templates_gone(stage: Stage) -> Iterator[None]:
    """No template of the storm stays."""
    yield
    stage.pods.delete_all()
    for wish in SHARES:
        stage.cluster.api.delete(f"{TEMPLATES}/{wish.label}", None)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("templates_gone")
def test_shares_of_a_gpu_through_both_doors_are_never_more_than_all_of_it(stage: Stage, storm: Storm) -> None:
    rage(stage, storm, SHARES, Random(21), 60, "agent")


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("templates_gone")
def test_500_pods_with_shares_and_whole_gpus_while_every_part_is_killed(stage: Stage, storm: Storm) -> None:
    random = Random(22)
    victims = [*VICTIMS, *VICTIMS, *VICTIMS]
    random.shuffle(victims)
    rage(stage, storm, SHARES, random, 500, *victims)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("templates_gone")
def test_every_replica_of_a_shared_gpu_is_given_to_a_pod_of_its_own(stage: Stage, storm: Storm) -> None:
    stage.run_driver("h100-sxm-8", *resources(partitions=False))
    wait_allocatable(stage.cluster.api, stage.node, SHARED, 3 * REPLICAS)
    wish = SHARES[0]
    with Watcher(stage.node, DEVICES) as watcher:
        names = []
        for number in range(3 * REPLICAS):
            body = wish.pod(number, 600.0, 0)
            stage.cluster.api.create(PODS, body)
            names.append(body["metadata"]["name"])
        for name in names:
            stage.pods.wait_phase(name, "Running")
    stage.pods.delete_all()
    assert watcher.report.pods == 3 * REPLICAS
    assert not watcher.report.overlaps, watcher.report.overlaps
