"""Plays worlds before the scheduler and before us, and makes those small that are answered differently."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from tests.cluster.rig.api import ApiRefused, NotAsExpected
from tests.cluster.scheduler.live import LiveDecision, LiveStage
from tests.cluster.scheduler.ours import differences
from tests.cluster.scheduler.world import NODES
from tests.judge.chance import Json
from tests.judge.shrink import shrunk

ATTEMPTS = 120
"""Smaller worlds that are tried, at about four a second."""
TIMED_OUT = "timed out trying to allocate"


@dataclass(slots=True)
class Played:
    """What came of worlds. ``differing``: lines by world; ``refused``: objects that only the API server refused."""

    decisions: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def play(stage: LiveStage, world: Json, played: Played) -> None:
    """Lay out a world, schedule its pods in turn, compare; its pods after the first difference are left out."""
    world = stage.fresh(world)
    laid = stage.lay(world)
    try:
        played.refused += (f"world {world['name']}: {each}" for each in laid.refused)
        for pod in world["pods"]:
            names = [claim["metadata"]["name"] for claim in pod["claims"] if claim["metadata"]["name"] in laid.claims]
            if not names:
                continue
            decision = stage.schedule(f"{names[0]}-pod", names, pod.get("node", ""))
            played.decisions[_kind(decision)] += 1
            nodes = [stage.nodes[name] for name in ([pod["node"]] if "node" in pod else NODES)]
            found = [] if TIMED_OUT in decision.message else differences(laid, names, nodes, decision, stage.features)
            if found:
                played.differing.append(f"world {world['name']}, pod {pod['name']}: {'; '.join(found)}")
                return
            laid.claims.update({claim["metadata"]["name"]: claim for claim in decision.claims})
    finally:
        stage.clear()


def _kind(decision: LiveDecision) -> str:
    if TIMED_OUT in decision.message:
        return "timed out"
    return "scheduled" if decision.node else decision.reason


def smallest(stage: LiveStage, world: Json) -> Json:
    """The smallest world found about which the answers differ; classes stay as they are, those in use remain."""

    def differs(smaller: Json) -> bool:
        played = Played()
        try:
            play(stage, {**smaller, "classes": world["classes"]}, played)
        except (ApiRefused, NotAsExpected, KeyError):
            return False
        return bool(played.differing)

    small = shrunk({**json.loads(json.dumps(world)), "classes": []}, differs, patience=ATTEMPTS)
    used = json.dumps(small["pods"])
    return {**small, "classes": [each for each in world["classes"] if json.dumps(each["metadata"]["name"]) in used]}
