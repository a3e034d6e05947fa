"""The figures of both doors on a real cluster, and what is promised of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.figures import Figure, median

if TYPE_CHECKING:
    from tests.cluster.ledger.storm import StormOutcome

PREFIX = "doors_"
"""How the names of all of these figures begin."""
STORM, CHAOS, NAME, ALONE = "storm", "chaos", "name", "alone"
STORMS = (STORM, CHAOS, NAME, ALONE)
"""One ledger; the same while agent, kubelet and API server are killed; the same with a class that serves the plugin's
name as well, while the agent is killed; and an instance of its own for each door, which knows nothing of the other.
"""
REPLICA_SET, JOB, CLAIM = "replicaset", "job", "claim"
PATCHED = f"{REPLICA_SET}_patched"
"""A pod of a ReplicaSet, where the agent writes the Node's allocatable (``kubernetes.patchAllocatable``)."""
LOSERS = (REPLICA_SET, JOB, CLAIM, PATCHED)
"""Whose pod loses: a pod of the device plugin that a ReplicaSet or a Job has made, or a pod with a claim of a Job."""
IDLE = 30.0
"""Most seconds that a device may be free while pods wait that it fits.

A device that is allocated to a claim, or that a bound pod is to get, is not free; how long it is in no container is the
figure ``unused``. That has the kubelet's own pace in it: it tries a pod whose claim could not be prepared again after
10 to 15 s, and after a restart it may tell late of pods that have ended.
"""
_LIMITS = {(PATCHED, "failed_per_conflict"): 2}
COST_FIGURES = (
    *(
        Figure(f"{PREFIX}{loser}_{name}", at_most=_LIMITS.get((loser, name)))
        for loser in LOSERS
        for name in ("failed_per_conflict", "failed_worst", "recovery_s")
    ),
)


def _storm(kind: str) -> tuple[Figure, ...]:
    return (
        Figure(f"{PREFIX}{kind}_jobs"),
        Figure(f"{PREFIX}{kind}_doubles", at_most=0, against=f"{PREFIX}{ALONE}_doubles"),
        Figure(f"{PREFIX}{kind}_unfinished_jobs", at_most=0),
        Figure(f"{PREFIX}{kind}_idle_worst_s", at_most=IDLE),
        Figure(f"{PREFIX}{kind}_unused_worst_s"),
        Figure(f"{PREFIX}{kind}_failed_pods"),
        Figure(f"{PREFIX}{kind}_evicted_pods"),
        Figure(f"{PREFIX}{kind}_whole_s"),
    )


STORM_FIGURES: Mapping[str, tuple[Figure, ...]] = {
    **{kind: _storm(kind) for kind in (STORM, CHAOS, NAME)},
    # What it is compared with; nothing is promised of it.
    ALONE: (Figure(f"{PREFIX}{ALONE}_jobs"), Figure(f"{PREFIX}{ALONE}_doubles")),
}
DOORS_FIGURES = (*(figure for kind in STORMS for figure in STORM_FIGURES[kind]), *COST_FIGURES)


def storm_figures(kind: str, jobs: int, outcome: StormOutcome) -> dict[str, float]:
    """What became of a storm of so many Jobs."""
    start = f"{PREFIX}{kind}"
    alone: dict[str, float] = {f"{start}_jobs": jobs, f"{start}_doubles": len(outcome.doubles)}
    if kind == ALONE:
        return alone
    return {
        **alone,
        f"{start}_unfinished_jobs": len(outcome.unfinished),
        f"{start}_idle_worst_s": outcome.idle,
        f"{start}_unused_worst_s": outcome.unused,
        f"{start}_failed_pods": outcome.failed.total(),
        f"{start}_evicted_pods": outcome.evicted,
        f"{start}_whole_s": outcome.seconds,
    }


def cost_figures(loser: str, failed: Sequence[int], recovered: Sequence[float]) -> dict[str, float]:
    """Of conflicts one by one: how many pods failed in each, and the seconds until the loser's next pod was well."""
    start = f"{PREFIX}{loser}"
    return {
        f"{start}_failed_per_conflict": sum(failed) / len(failed),
        f"{start}_failed_worst": max(failed),
        f"{start}_recovery_s": median(recovered),
    }
