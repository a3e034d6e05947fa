"""Every part of a node killed while interfaces move: none is lost, and no container runs without its own."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.dra.conftest import Stage
from tests.cluster.interfaces.moving import Moving
from tests.cluster.interfaces.stand_ins import stand_ins
from tests.cluster.rig.node import CGROUPS, Node
from tests.cluster.rig.pods import PODS
from tests.cluster.rig.processes import kill, wait_until
from tests.cluster.rig.victims import kill as kill_part

VICTIMS = ("agent", "kubelet", "containerd", "pod")
FIFTY = 50


@pytest.fixture
def moving(stage: Stage) -> Iterator[Moving]:
    with stand_ins(stage.node, 2) as made:
        yield Moving(stage, made)


def strike(moving: Moving, victim: str, pod: str, uid: str) -> None:
    """Kill the part, and start it again."""
    if victim == "pod":
        for process in processes(moving.stage.node, uid):
            kill(process)
    else:
        kill_part(victim, moving.stage.cluster, moving.stage.node, moving.agent)


def processes(node: Node, uid: str) -> list[int]:
    """All processes of a pod, that of its sandbox too."""
    found: set[int] = set()
    for top in (CGROUPS, *CGROUPS.iterdir()):
        for file in (top / node.cgroup.lstrip("/")).glob(f"**/pod{uid}/**/cgroup.procs"):
            found |= {int(line) for line in file.read_text().split()}
    return sorted(found)


def play(moving: Moving, rounds: int, seed: int) -> None:
    """Rounds of a pod that starts and ends, each with one part killed on its way up and one on its way down."""
    pods, chance = moving.stage.pods, random.Random(seed)
    order = [*VICTIMS * (rounds // len(VICTIMS) + 1)][:rounds]
    for number, victim in enumerate(chance.sample(order, rounds)):
        name, last = f"round-{number}", chance.choice(VICTIMS)
        said = f"round {number} of seed {seed}: {victim} killed at the start, {last} at the end"
        try:
            moving.create(name, restartPolicy="Always")
            uid = pods.get(name)["metadata"]["uid"]
            time.sleep(chance.uniform(0, 0.6))  # any moment of its start
            strike(moving, victim, name, uid)
            moving.wait_interface(name, 120)
            # A kubelet that is killed after a pod was deleted by force takes a minute to find out.
            moving.stage.cluster.api.delete(f"{PODS}/{name}", chance.choice((0, 1, 1, 1)))
            time.sleep(chance.uniform(0, 0.4))  # any moment of its end
            strike(moving, last, name, uid)
            moving.wait_back(120)
        except Exception as error:
            raise AssertionError(said) from error


@pytest.mark.timeout(400)
def test_parts_that_die_at_any_moment_cost_no_interface(moving: Moving) -> None:
    play(moving, len(VICTIMS), seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_two_hundred_rounds_cost_no_interface(moving: Moving) -> None:
    play(moving, 200, seed=int(os.environ.get("OSTLER_SEED", "2")))


def test_a_container_waits_for_its_interface_if_the_runtime_dropped_the_plugin(moving: Moving) -> None:
    stage = moving.stage
    # A plugin that is called before ours: while it keeps the runtime waiting, the agent is stopped.
    gate = stage.node.spawn("gate", sys.executable, "-m", "tests.cluster.interfaces.recorder", "gate")
    try:
        wait_until("the gate is registered", lambda: '"connected"' in gate.output, alive=gate.died)
        moving.create("gated-1")
        wait_until("the sandbox is at the gate", lambda: '"run"' in gate.output, alive=gate.died)
        moving.agent.process.send(signal.SIGSTOP)
        try:
            # The runtime gives up after two seconds, and the guard keeps the container from being created.
            stage.pods.wait_event("gated-1", "Failed", "/plugins/ostler.dev/interfaces/")
            assert len(moving.stand_ins.on_node()) == 2
        finally:
            moving.agent.process.send(signal.SIGCONT)
        moving.wait_interface("gated-1")
    finally:
        gate.end(signal.SIGKILL)
    stage.pods.delete("gated-1")
    moving.wait_back()


def test_the_next_instance_takes_interfaces_over_and_back(moving: Moving) -> None:
    stage = moving.stage
    moving.run("first")
    standby = stage.run_driver(moving.stand_ins.recorded, *moving.resources, start=False, name="standby")
    standby.spawn()
    wait_until("the standby waits", lambda: "standby" in standby.process.output, alive=standby.process.died)
    moving.agent.stop()
    wait_until("the standby is ready", standby.ready, alive=standby.process.died)
    moving.wait_interface("first")
    moving.run("second")
    for name in ("first", "second"):
        stage.pods.delete(name)
    moving.wait_back()


@pytest.mark.timeout(300)
def test_fifty_pods_at_once_get_fifty_interfaces_and_give_them_back(stage: Stage, tmp_path: Path) -> None:
    with stand_ins(stage.node, FIFTY) as made:
        moving = Moving(stage, made)
        names = [f"pod-{number}" for number in range(FIFTY)]
        for name in names:
            moving.create(name)
        for name in names:
            moving.wait_interface(name, 200)
        assert len({moving.interface_of(name) for name in names}) == FIFTY
        assert made.on_node() == {}
        for name in names:
            stage.cluster.api.delete(f"{PODS}/{name}", 0)
        moving.wait_back(200)
