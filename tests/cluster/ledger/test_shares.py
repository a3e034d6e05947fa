"""GPUs whole, in shares and in parts, through both doors at once: what pods have of one is never more than all."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.cluster.dra.claims import TEMPLATES, published
from tests.cluster.dra.conftest import DraStage
from tests.cluster.ledger.overlaps import OverlapWatcher
from tests.cluster.ledger.sharing_storm import PARTITIONS, REPLICAS, SHARED, SHARES, SharingStorm, resources
from tests.cluster.ledger.storm import GPU, Storm
from tests.cluster.ledger.test_forced import DEVICES, show
from tests.cluster.rig.agent import NodeAgent, wait_allocatable
from tests.cluster.rig.pods import PODS
from tests.cluster.rig.processes import wait_until
from tests.cluster.rig.victims import VICTIMS, kill

EVERYTHING = (*SHARES, *PARTITIONS)
CAPABILITIES = [f"/dev/nvidia-caps/nvidia-cap{1000 + 100 * gpu + number}" for gpu in (5, 6) for number in range(2, 18)]
"""Device files of every partition that can be made of the last but two GPUs, as recorded nodes number them."""


def rage(stage: DraStage, storm: Storm, random: Random, pods: int, *victims: str) -> NodeAgent:
    """A storm of so many pods, with a look at all containers every 20 ms."""
    stage.node.make_devices(*CAPABILITIES)
    agent = stage.run_driver("h100-sxm-8", *resources(partitions=True))
    wait_allocatable(stage.cluster.api, stage.node, SHARED, 3 * REPLICAS)
    wait_allocatable(stage.cluster.api, stage.node, GPU, 3)
    wait_until("partitions are published", lambda: len(published(stage.claims.slices())) > 8)
    storming = SharingStorm(
        stage.cluster.api,
        stage.node,
        storm,
        random,
        lambda victim: kill(victim, stage.cluster, stage.node, agent),
        wishes=EVERYTHING,
    )
    for one in storming.templates():
        stage.cluster.api.create(TEMPLATES, one)
    with OverlapWatcher(DEVICES, stage.node) as watcher:
        storming.rage(pods, victims)
    seen = watcher.report
    show(storming, seen)
    assert not seen.overlaps, seen.overlaps
    assert seen.pods >= pods / 3, "hardly a container was seen"
    assert storming.ended["forced"] >= pods / 10, "hardly a pod was deleted by force"
    return agent


def assert_nothing_is_left(stage: DraStage, agent: NodeAgent) -> None:
    """No partition, no CDI file and no hold stays when all pods have ended."""

    def nothing_left() -> bool:
        parts = [each["name"] for each in agent.ask("devices")["devices"] if each["kind"] == "mig"]
        held = [each["device"] for each in agent.ask("holds").get("devices", []) if each["holds"]]
        return not parts and not held

    wait_until("no partition and no hold is left", nothing_left)


@pytest.fixture
def templates_gone(stage: DraStage) -> Iterator[None]:
    """No template of the storm stays."""
    yield
    stage.pods.delete_all()
    for wish in EVERYTHING:
        stage.cluster.api.delete(f"{TEMPLATES}/{wish.label}", None)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("templates_gone")
def test_whole_gpus_shares_and_partitions_are_never_more_than_there_is(stage: DraStage, storm: Storm) -> None:
    agent = rage(stage, storm, Random(21), 60, "agent")
    assert_nothing_is_left(stage, agent)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("templates_gone")
def test_500_pods_with_shares_partitions_and_whole_gpus_while_every_part_is_killed(
    stage: DraStage, storm: Storm
) -> None:
    random = Random(22)
    victims = [*VICTIMS, *VICTIMS, *VICTIMS]
    random.shuffle(victims)
    agent = rage(stage, storm, random, 500, *victims)
    assert_nothing_is_left(stage, agent)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("templates_gone")
def test_every_replica_of_a_shared_gpu_is_given_to_a_pod_of_its_own(stage: DraStage, storm: Storm) -> None:
    stage.run_driver("h100-sxm-8", *resources(partitions=False))
    wait_allocatable(stage.cluster.api, stage.node, SHARED, 3 * REPLICAS)
    wish = SHARES[0]
    with OverlapWatcher(DEVICES, stage.node) as watcher:
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
