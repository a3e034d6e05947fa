"""Pods deleted by force: their containers run on for a moment, and until they have ended nobody else has the device."""

from __future__ import annotations

import math
import time
from random import Random

import pytest

from tests.cluster.dra.conftest import DraStage
from tests.cluster.ledger.forced import ForcedStorm
from tests.cluster.ledger.overlaps import OverlapWatcher, Report
from tests.cluster.ledger.shims import slow_to_end
from tests.cluster.ledger.storm import CLAIM, PLUGIN, Storm
from tests.cluster.ledger.test_storm import calm
from tests.cluster.rig.api import Object
from tests.cluster.rig.node import processes_of_pod
from tests.cluster.rig.pods import PODS, phase
from tests.cluster.rig.processes import wait_until
from tests.cluster.rig.victims import VICTIMS, kill

DEVICES = r"nvidia\d+"
OUTLIVES = 1.5
"""Seconds that containers outlive the order to end; less than Allocate waits."""
SLOW = 4.0
"""Seconds that containers outlived their pod where Allocate may have waited in vain: it waits for five."""
ATTEMPTS = 5


def rage(stage: DraStage, storm: Storm, random: Random, pods: int, victims: tuple[str, ...]) -> None:
    """A storm of so many pods, with a look at all containers every 20 ms."""
    agent = calm(stage)
    forced = ForcedStorm(
        stage.cluster.api, stage.node, storm, random, lambda victim: kill(victim, stage.cluster, stage.node, agent)
    )
    with OverlapWatcher(DEVICES, stage.node) as watcher:
        forced.rage(pods, victims)
    seen = watcher.report
    show(forced, seen)
    assert not seen.overlaps, seen.overlaps
    assert seen.pods >= pods / 3, "hardly a container was seen"
    assert forced.ended["forced"] >= pods / 10, "hardly a pod was deleted by force"


def show(forced: ForcedStorm, seen: Report) -> None:
    """Print what was done and seen: a failure is read by it."""
    print(f"{forced.created} pods, {seen.pods} had devices, {dict(forced.ended)}, {dict(forced.reasons)}")
    print(f"{seen.looks} looks, the slowest after {seen.slowest:.3f} s")
    for overlap in seen.overlaps:
        print(f"  {overlap.device}: {overlap.pods} for {overlap.seconds:.2f} s at {overlap.began:.3f}")


@pytest.mark.timeout(900)
def test_no_device_is_given_again_before_the_containers_of_a_pod_deleted_by_force_have_ended(
    stage: DraStage, storm: Storm
) -> None:
    rage(stage, storm, Random(40), 40, ("agent",))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_device_is_given_twice_in_300_pods_while_every_part_is_killed(
    seed: int, stage: DraStage, storm: Storm
) -> None:
    random = Random(seed)
    victims = [*VICTIMS, *VICTIMS, *VICTIMS]
    random.shuffle(victims)
    rage(stage, storm, random, 300, tuple(victims))


@pytest.mark.parametrize("way", [PLUGIN, CLAIM])
def test_a_pod_that_waits_for_the_device_of_one_deleted_by_force_gets_it_when_its_containers_have_ended(
    way: str, stage: DraStage, storm: Storm
) -> None:
    """All devices are held, so that what the kubelet takes for free is allocated again at once."""
    calm(stage)
    forced = ForcedStorm(stage.cluster.api, stage.node, storm, Random(1), lambda _: None)
    lived = [SLOW]
    for attempt in range(ATTEMPTS):
        # On a machine that has much else to do, containers may end later than Allocate waits.
        assert max(lived) >= SLOW, f"a pod was refused though the containers ended after {lived} s"
        refused, lived = contest(way, stage, forced, attempt)
        if not refused:
            return
    pytest.fail(f"in {ATTEMPTS} attempts the containers ended too late; at last after {lived} s")


def contest(way: str, stage: DraStage, forced: ForcedStorm, attempt: int) -> tuple[list[Object], list[float]]:
    """Two pods wait for the devices of two that are deleted: who is refused, and how long the containers lived on."""
    api, pods = stage.cluster.api, stage.pods
    with OverlapWatcher(DEVICES, stage.node) as watcher:
        holders = [forced.holder(f"holder-{attempt}-{number}", PLUGIN) for number in range(8)]
        for name in holders:
            pods.wait_phase(name, "Running")
        waiting = [forced.holder(f"waits-{attempt}-{number}", way) for number in range(2)]
        began: dict[str, float] = {}
        ended: dict[str, float] = {}
        for name in holders[:2]:
            uid = pods.get(name)["metadata"]["uid"]
            slow_to_end(stage.node, name, OUTLIVES)
            api.delete(f"{PODS}/{name}", 0)
            began[uid] = time.monotonic()

        def are_judged() -> bool:
            ended.update({uid: time.monotonic() for uid in began.keys() - ended.keys() if not processes_of_pod(uid)})
            return all(phase(pods.get(name)) in {"Running", "Failed"} for name in waiting)

        wait_until("the waiting pods are judged", are_judged)
        refused = [found for found in map(pods.get, waiting) if phase(found) == "Failed"]
    pods.end(*holders[2:], *waiting)
    show(forced, watcher.report)
    assert not watcher.report.overlaps
    assert refused or watcher.report.pods == 10
    return refused, [ended.get(uid, math.inf) - since for uid, since in began.items()]
