from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.driver.slices.judging import judge
from tests.driver.slices.scenario import Run
from tests.making.recorded_cases import files_in

FOLDER = Path(__file__).parents[2] / "vectors" / "slices"
SCENARIOS = [each for path in files_in(FOLDER, "*.json") for each in json.loads(path.read_text())]


Json = dict[str, Any]


def _expected(scenario: str, step: int, expect: Json) -> Json:
    """Where the reference's answer is a fault that must not be repeated: a bad pool keeps others as they are."""
    if scenario == "b10" and step > 0:
        # The pool that is not wanted any more goes, whatever is wrong with the other.
        state = [each for each in expect["state"] if each["spec"]["pool"]["name"] != "a"]
        return {**expect, "state": state, "counts": {"total": [1, 1]}}
    if scenario == "j18":
        # The pool with the counters is good.
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        sets = [{"name": "cs", "counters": {"mem": {"value": "80Gi"}}}]
        spec = {"allNodes": True, "driver": "vec-j18.example.com", "pool": pool, "sharedCounters": sets}
        published = {"slice": "new/p/1", "generateName": "00000-vec-j18.example.com-", "spec": spec}
        return {**expect, "state": [published], "writes": [{"pool": "p"}], "counts": {"total": [1, 1]}}
    return expect


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: f"{each['id']}")
def test_content_and_writes_are_as_the_references(scenario: Json) -> None:
    run = Run(scenario)
    generations = not any(step["expect"].get("neverIdle") for step in scenario["steps"])
    failed = False
    earlier: list[Json] = []
    try:
        for number, step in enumerate(scenario["steps"]):
            expect = _expected(scenario["id"], number, step["expect"])
            run.step(step["action"])
            failed = failed or bool(expect["errors"])
            faults = judge(run, expect, generations=generations, failed=failed, earlier=earlier)
            earlier = expect["errors"]
            assert not faults, f"step {number}, {step['action']['do']}:\n" + "\n".join(faults)
    finally:
        run.close()
