"""The figures of both doors: names, targets and arithmetic; no cluster is needed here."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.doors.figures import (
    ALONE,
    CHAOS,
    COST_FIGURES,
    DOORS_FIGURES,
    JOB,
    LOSERS,
    NAME,
    PREFIX,
    STORM,
    STORM_FIGURES,
    STORMS,
    cost_figures,
    storm_figures,
)
from bench.results import HEADINGS, Benchmark, rows
from tests.cluster.ledger.idleness import Idleness
from tests.cluster.ledger.storm import StormOutcome, why
from tests.cluster.rig.api import Object

OUTCOME = StormOutcome(
    ran=24,
    doubles=["nvidia3 b"],
    failed=Counter({"its device is held": 2, "exit": 1}),
    evicted=4,
    idle=11.5,
    unused=14.0,
    seconds=90.0,
)


@pytest.mark.parametrize("kind", STORMS)
def test_every_storm_has_the_figures_that_it_promises(kind: str) -> None:
    figures = storm_figures(kind, 24, OUTCOME)
    assert figures.keys() == {figure.name for figure in STORM_FIGURES[kind]}
    assert figures[f"doors_{kind}_doubles"] == 1


@pytest.mark.parametrize("kind", [STORM, CHAOS, NAME])
def test_a_device_that_is_given_twice_misses_the_target_and_stands_beside_two_that_know_nothing(kind: str) -> None:
    figures = storm_figures(kind, 24, OUTCOME) | storm_figures(ALONE, 24, StormOutcome(doubles=["a", "b", "c"]))
    shown = {line[0]: dict(zip(HEADINGS, line, strict=True)) for line in rows(figures, STORM_FIGURES[kind])}
    doubles, idle = shown[f"doors_{kind}_doubles"], shown[f"doors_{kind}_idle_worst_s"]
    assert (doubles["ostler"], doubles["floor"], doubles["reached"]) == ("1", "3", "no")
    assert idle["reached"] == "yes"


def test_a_device_is_idle_only_while_two_that_fit_wait_and_nobody_has_it() -> None:
    idle, ended = Idleness(["a", "b"]), {"a": 0.0, "b": 0.0}
    idle.look(100.0, [1, 2], {"a"}, ended)
    idle.look(110.0, [1, 2], {"a"}, ended)
    assert idle.worst == 0.0, "only one of them fits"
    idle.look(120.0, [1, 1], {"a"}, ended)
    idle.look(125.0, [1, 1], {"a"}, ended)
    assert idle.worst == 5.0
    idle.look(130.0, [1, 1], {"a", "b"}, ended)
    idle.look(134.0, [1, 1], {"a"}, ended)
    assert idle.worst == 5.0, "it was given meanwhile"
    idle.look(138.0, [1, 1], {"a"}, {"a": 0.0, "b": 137.0})
    assert idle.worst == 5.0, "a container had it between two looks"
    idle.nobody_waits()
    idle.look(150.0, [1, 1], {"a"}, ended)
    assert idle.worst == 5.0


def test_a_device_that_is_promised_to_a_bound_pod_is_not_idle_and_is_the_one_that_was_free_for_longest() -> None:
    idle, ended = Idleness(["a", "b"]), {"a": 0.0, "b": 106.0}
    idle.look(100.0, [1, 1], set(), ended, promised=1)
    idle.look(110.0, [1, 1], set(), ended, promised=1)
    assert idle.worst == 4.0
    idle.look(120.0, [1, 1], set(), ended, promised=2)
    assert idle.worst == 4.0


def test_failed_pods_are_counted_for_each_conflict() -> None:
    figures = {
        name: value for loser in LOSERS for name, value in cost_figures(loser, [1, 2, 6], [3.0, 1.0, 9.0]).items()
    }
    assert figures.keys() == {figure.name for figure in COST_FIGURES}
    start = f"{PREFIX}{JOB}"
    assert (figures[f"{start}_failed_per_conflict"], figures[f"{start}_failed_worst"]) == (3, 6)
    assert figures[f"{start}_recovery_s"] == 3.0


def test_all_figures_are_of_this_benchmark() -> None:
    assert {Benchmark.of(figure.name) for figure in DOORS_FIGURES} == {Benchmark.DOORS}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"reason": "UnexpectedAdmissionError", "message": "device a is held through the dra door by x"},
            "its device is held",
        ),
        ({"message": "Requested number of devices unavailable for nvidia.com/gpu"}, "no device is left"),
        ({"message": "unhealthy devices a (held through the dra door by x)"}, "its device is held"),
        ({"conditions": [{"type": "DisruptionTarget"}]}, "evicted"),
        ({"reason": "Evicted"}, "Evicted"),
        ({}, "exit"),
    ],
)
def test_failed_pods_are_told_apart_by_what_their_status_says(status: Object, expected: str) -> None:
    assert why(status) == expected
