"""Scenarios repeat with their seed and reach what they are meant to; the comparison sees what differs.

Playing them with the reference takes minutes and is ``make judge-slices``.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from tests.judge.chance import Json
from tests.judge.slices.contest import compare, merged, unjudged
from tests.judge.slices.generate import scenarios
from tests.making.recorded_cases import files_in

FOLDER = Path(__file__).parents[2] / "vectors" / "slices"
REACHED = (
    "restart", "updates", "createNode", "lost-response", "race", "sharedCounters", "consumesCounters", "taints",
    "timeAdded", "nodeSelector", "allNodes", "perDeviceNodeSelection", "reconcilePoolWithName", "gates-off",
    "generation", "finalizers", "Fleet", "nodeAllocatableResourceMappings", "requestPolicy", "bindsToNode", "strings",
    "ownerReferences", "stranger",
)  # fmt: skip


def recorded(name: str) -> Json:
    """One of the recorded scenarios."""
    every = [each for path in files_in(FOLDER, "*.json") for each in json.loads(path.read_text())]
    found: Json = next(each for each in every if each["id"] == name)
    return found


def test_same_number_is_the_same_scenario() -> None:
    (one,), (same,), (other,) = (list(scenarios("1", number, 1)) for number in (7, 7, 8))
    assert one == same
    assert {**one, "id": ""} != {**other, "id": ""}


@pytest.mark.parametrize("word", REACHED)
def test_feature_is_reached_within_two_hundred_scenarios(word: str) -> None:
    assert any(f'"{word}' in json.dumps(each) for each in scenarios("1", 0, 200))


def test_recorded_scenario_does_not_differ_and_one_that_is_tampered_with_does() -> None:
    scenario = recorded("c02")
    assert compare(scenario) is None
    tampered = copy.deepcopy(scenario)
    tampered["steps"][1]["expect"]["state"][0]["spec"]["devices"][0]["name"] = "other"
    step, faults = compare(tampered) or (0, [])
    assert step == 1
    assert "missing: " in faults[0]


def test_either_of_two_answers_of_the_reference_will_do() -> None:
    scenario = recorded("c02")
    other = copy.deepcopy(scenario)
    expect = other["steps"][1]["expect"]
    expect["state"], expect["counts"]["total"] = [], [0, 0]
    assert compare(other) is not None
    assert compare(merged(other, scenario)) is None
    assert unjudged(other) == unjudged(scenario)


def test_what_breaks_off_is_a_difference() -> None:
    scenario = recorded("c02")
    scenario["steps"][1]["action"]["do"] = "dance"
    step, faults = compare(scenario) or (0, [])
    assert step == 1
    assert "AssertionError: dance" in faults[0]
