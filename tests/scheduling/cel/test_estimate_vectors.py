from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from scheduling.cel.checker import check
from scheduling.cel.environment import CelFeatures, environment
from scheduling.cel.estimate import estimate
from scheduling.cel.library.prices import UNBOUNDED
from scheduling.cel.parser import parse
from tests.making.recorded_cases import cases_in, files_in

RECORDED = Path(__file__).parent / "recorded" / "estimates.jsonl"
"""Generated expressions and corners of the libraries as Kubernetes 1.37 estimated them (tests/judge)."""
FILES = files_in(Path(__file__).parents[2] / "vectors" / "cel", "*.jsonl")


def _max_cost(expression: str, features: CelFeatures) -> int:
    return estimate(check(parse(expression), environment(features)))


def _wanted(case: dict[str, Any]) -> int | None:
    changed = case.get("v1_37", {})
    if "compile_error" in changed:
        return None
    wanted: int | None = changed.get("max_cost", case.get("max_cost"))
    return wanted


def _features(case: dict[str, Any]) -> CelFeatures:
    return CelFeatures(
        consumable_capacity=case["features"]["consumableCapacity"],
        list_attributes=case["features"]["listTypeAttributes"],
        stored=case["env"] == "stored",
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_worst_cost_is_that_of_kubernetes(file: Path) -> None:
    different = {}
    for case in cases_in(file):
        wanted = _wanted(case)
        if wanted is None:
            continue
        expression = case.get("expr") or base64.b64decode(case["expr_base64"]).decode("utf-8", "replace")
        found = _max_cost(expression, _features(case))
        if found != wanted:
            different[expression] = (found, wanted)
    assert different == {}


def test_generated_expressions_have_the_recorded_worst_cost() -> None:
    cases = cases_in(RECORDED)
    found = {case["expr"]: _max_cost(case["expr"], CelFeatures()) for case in cases}
    assert found == {case["expr"]: case["max_cost"] for case in cases}


def test_a_path_is_overwritten_by_the_next_step_from_the_same_part() -> None:
    # The key of a map of capacities has at most 32 characters, a capacity has no size: the second loop variable's path
    # takes the place of the first one's, as cel-go's do.
    assert _max_cost('device.capacity["d"].all(k, k != "a")', CelFeatures()) == 164
    assert _max_cost('device.capacity["d"].all(k, v, k != "a")', CelFeatures()) == 132


def test_the_deepest_nesting_is_estimated() -> None:
    assert _max_cost("[1].exists_one(x, " * 249 + "true" + ")" * 249, CelFeatures()) == 3486


def test_a_cost_without_bound_is_told_as_such() -> None:
    assert (
        _max_cost('device.attributes["d"].x.flatten().all(x, x.flatten().all(y, y == 1))', CelFeatures()) == UNBOUNDED
    )
