"""Storms of Jobs that want devices through either door at once, on a new cluster each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bench.doors.figures import ALONE, CHAOS, NAME, STORM
from bench.doors.stage import GPUS, stage
from tests.cluster.dra.claims import TEMPLATES
from tests.cluster.ledger.storm import CLAIM, PLUGIN, Storm, StormOutcome
from tests.cluster.ledger.storm import NAME as BY_NAME
from tests.cluster.rig.victims import kill

VICTIMS: dict[str, tuple[str, ...]] = {
    STORM: (),
    CHAOS: ("agent", "agent", "kubelet", "api"),
    NAME: ("agent",),
    ALONE: (),
}
"""Who is killed meanwhile; named twice, twice as often."""
BETWEEN = (5.0, 15.0)
"""Seconds between two blows."""
PATIENCE = 60.0
"""Seconds in which every Job has to succeed, beside ``EACH`` for each."""
EACH = 3.0


@dataclass(frozen=True, slots=True)
class StormRun:
    """What was seen of a storm; ``counted``: what the agent counted, ``blows``: who was killed how often."""

    outcome: StormOutcome
    counted: dict[str, float]
    blows: dict[str, int]
    logs: str


def run(kind: str, jobs: int, chance: Random, say: Callable[[str], None]) -> StormRun:
    """One storm of a kind with so many Jobs."""
    blows: dict[str, int] = {}
    with stage(alone=kind == ALONE, shared_name=kind == NAME) as made:
        storm = Storm(made.cluster.api, made.node, GPUS)
        for template in storm.templates():
            made.cluster.api.create(TEMPLATES, template)
        began = time.monotonic()
        until = began + PATIENCE + EACH * jobs
        with storm.watched():
            storm.create(jobs, chance, (BY_NAME if kind == NAME else PLUGIN, CLAIM))
            left = storm.wait(0.0)
            while left and time.monotonic() < until:
                left = storm.wait(chance.uniform(*BETWEEN))
                say(f"{kind}: {len(left)} of {jobs} Jobs left, {sum(blows.values())} blows")
                if left and VICTIMS[kind]:
                    victim = chance.choice(VICTIMS[kind])
                    blows[victim] = blows.get(victim, 0) + 1
                    kill(victim, made.cluster, made.node, made.agent)
        outcome = storm.outcome()
        outcome.seconds, outcome.unfinished = time.monotonic() - began, left
        wrong = outcome.doubles or left
        return StormRun(outcome, made.counted(), blows, str(made.cluster.keep_logs(f"doors-{kind}")) if wrong else "")
