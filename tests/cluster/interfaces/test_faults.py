"""Every part of a node killed while interfaces move: none is lost, and no container runs without its own."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from driver.interfaces.moving import InterfaceStep
from tests.cluster.dra.conftest import DraStage
from tests.cluster.interfaces.held_agent import AgentHold, held_agent
from tests.cluster.interfaces.moving import Moving
from tests.cluster.interfaces.stand_ins import stand_ins
from tests.cluster.rig.node import processes_of_pod
from tests.cluster.rig.pods import PODS
from tests.cluster.rig.processes import kill, wait_until
from tests.cluster.rig.victims import kill as kill_part

VICTIMS = ("agent", "kubelet", "containerd", "pod")
Moment = tuple[InterfaceStep | None, str]
"""The step at which a part is killed, None for any moment, and the part."""
DOWN = (None, InterfaceStep.UNGUARDED, InterfaceStep.DETACHED, InterfaceStep.FORGOTTEN)
UP = (None, *(step for step in InterfaceStep if step not in DOWN))
FIFTY = 50
LONG = 300.0
"""Seconds of patience with many pods, and with a kubelet that finds out late."""


@pytest.fixture
def moving(stage: DraStage) -> Iterator[Moving]:
    with stand_ins(stage.node, 2) as made:
        yield Moving(stage, made)


@pytest.fixture
def held(stage: DraStage) -> Iterator[Rounds]:
    """Rounds of an agent whose moves can be held at a step."""
    folder = stage.node.folder / "hold"
    with stand_ins(stage.node, 2) as made:
        hold = AgentHold(folder)
        yield Rounds(Moving(stage, made, program=held_agent(folder)), hold)
        hold.release()


class Rounds:
    """Rounds of a pod that starts and ends, each with one part killed on its way up and one on its way down.

    A part dies while the move is held at a named step or, for None, at any moment. ``killed`` counts.
    """

    def __init__(self, moving: Moving, hold: AgentHold) -> None:
        self._moving = moving
        self._hold = hold
        self.killed: Counter[tuple[str, str]] = Counter()

    def play(self, rounds: int, seed: int) -> None:
        """Play them: four rounds have every part killed on either way, 24 rounds at every step."""
        chance = random.Random(seed)
        ups, downs = turns(UP, chance), turns(DOWN, chance)
        for number in range(rounds):
            up, down = ups[number % len(ups)], downs[number % len(downs)]
            said = f"round {number} of seed {seed}: {_said(up)} on the way up, {_said(down)} on the way down"
            began = time.monotonic()
            try:
                ran = self._play(f"round-{number}", up, down, chance)
            except Exception as error:
                raise AssertionError(said) from error
            print(f"{said}: {ran - began:.1f} s and {time.monotonic() - ran:.1f} s", flush=True)

    def _play(self, name: str, up: Moment, down: Moment, chance: random.Random) -> float:
        """One round; when the pod ran, in monotonic seconds."""
        moving = self._moving
        self._hold_at(up)
        moving.create(name, restartPolicy="Always")
        uid = moving.stage.pods.get(name)["metadata"]["uid"]
        self._strike(up, uid, chance.uniform(0, 0.6))
        moving.wait_interface(name, LONG, nudged=True)
        ran = time.monotonic()
        self._hold_at(down)
        # A kubelet that is killed after a pod was deleted by force takes a minute to find out.
        grace = 1 if down[1] == "kubelet" else chance.choice((0, 1))
        moving.stage.cluster.api.delete(f"{PODS}/{name}", grace)
        self._strike(down, uid, chance.uniform(0, 0.4))
        moving.wait_back(LONG)
        return ran

    def _hold_at(self, moment: Moment) -> None:
        if moment[0] is not None:
            self._hold.at(moment[0])

    def _strike(self, moment: Moment, uid: str, pause: float) -> None:
        """Kill the part at its moment, and start it again; what was held goes on."""
        step, victim = moment
        if step is None:
            time.sleep(pause)  # any moment of its start or end
        else:
            wait_until(f"a move is at the step {step.name}", self._hold.is_reached)
        stage = self._moving.stage
        if victim == "pod":
            for process in processes_of_pod(uid):
                kill(process)
        elif victim == "agent":
            # Nobody waits until it is ready, so it may be killed again before.
            self._moving.agent.stop(signal.SIGKILL)
            self._moving.agent.spawn()
        else:
            kill_part(victim, stage.cluster, stage.node, self._moving.agent)
        self._hold.release()
        self.killed[step.name if step is not None else "any moment", victim] += 1


def turns(steps: Sequence[InterfaceStep | None], chance: random.Random) -> list[Moment]:
    """Each part at each step, in an order in which four neighbours have four parts."""
    order, parts = chance.sample(steps, len(steps)), chance.sample(VICTIMS, len(VICTIMS))
    return [
        (order[(a * (len(parts) + 1) + b) % len(order)], part)
        for a in range(len(order))
        for b, part in enumerate(parts)
    ]


def _said(moment: Moment) -> str:
    step, victim = moment
    return f"{victim} killed at {step.name if step is not None else 'any moment'}"


@pytest.mark.timeout(1200)
def test_parts_that_die_while_interfaces_move_cost_no_interface(held: Rounds) -> None:
    held.play(len(VICTIMS), seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_two_hundred_rounds_cost_no_interface(held: Rounds) -> None:
    held.play(int(os.environ.get("OSTLER_ROUNDS", "200")), seed=int(os.environ.get("OSTLER_SEED", "2")))
    for (step, victim), count in sorted(held.killed.items()):
        print(f"{step}: {victim} killed {count} times")


def test_a_container_waits_for_its_interface_if_the_runtime_dropped_the_plugin(moving: Moving) -> None:
    stage = moving.stage
    # A plugin that is called before ours stops the agent, which has prepared the claim by then.
    agent = str(moving.agent.process.pid_inside)
    gate = stage.node.spawn("gate", sys.executable, "-m", "tests.cluster.interfaces.recorder", agent)
    try:
        wait_until("the gate is registered", lambda: '"connected"' in gate.output, alive=gate.died)
        try:
            moving.create("gated-1")
            wait_until("the sandbox is at the gate", lambda: '"run"' in gate.output, alive=gate.died)
            # The runtime gives up after two seconds, and the guard keeps the container from being created.
            stage.pods.wait_event("gated-1", "Failed", "/plugins/ostler.dev/interfaces/")
            assert len(moving.stand_ins.on_node()) == 2
        finally:
            moving.agent.process.send(signal.SIGCONT)
        moving.wait_interface("gated-1", nudged=True)
    finally:
        gate.end(signal.SIGKILL)
    stage.pods.delete("gated-1")
    moving.wait_back()


def test_the_next_instance_takes_interfaces_over_and_back(moving: Moving) -> None:
    stage = moving.stage
    moving.run("first")
    standby = moving.standby()
    moving.agent.stop()
    wait_until("the standby is ready", standby.ready, alive=standby.process.died)
    moving.wait_interface("first")
    moving.run("second")
    for name in ("first", "second"):
        stage.pods.delete(name)
    moving.wait_back()


@pytest.mark.timeout(900)
def test_fifty_pods_at_once_get_fifty_interfaces_and_give_them_back_across_a_handover(stage: DraStage) -> None:
    with stand_ins(stage.node, FIFTY) as made:
        moving = Moving(stage, made)
        standby = moving.standby()
        names = [f"pod-{number}" for number in range(FIFTY)]
        for name in names[: FIFTY // 2]:
            moving.create(name)
        wait_until("an interface has moved", lambda: len(made.on_node()) < FIFTY)
        moving.agent.process.send(signal.SIGTERM)
        for name in names[FIFTY // 2 :]:
            moving.create(name)
        moving.agent.stop()
        wait_until("the standby is ready", standby.ready, alive=standby.process.died)
        for name in names:
            moving.wait_interface(name, LONG, nudged=True)
        assert len({moving.interface_of(name) for name in names}) == FIFTY
        assert made.on_node() == {}
        for name in names:
            stage.cluster.api.delete(f"{PODS}/{name}", 0)
        moving.wait_back(LONG)
