"""The embedded kubelet against what the code of a real one did, step by step.

Selected are the scenarios without a topology manager (all of the file) that ask for no topology hints: hints are not
part of the embedded kubelet. From recorded admissions ``hints`` and ``affinity`` are left out for the same reason. The
records were made with a released kubelet, so ``keep_known_holes`` is on; without it all but the scenario about a hole
must come out the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.making.recorded_cases import cases_in
from tests.sandbox.kubelet.scenario import Scenario

Json = dict[str, Any]

_FILE = Path(__file__).parents[2] / "vectors" / "kubelet" / "allocation.jsonl"

_HOLE = "ids stay reserved after a preferred-allocation error"


def _selected() -> list[Json]:
    scenarios = cases_in(_FILE)
    return [item for item in scenarios if not {"hints", "pod_hints"} & {step["op"] for step in item["steps"]}]


def test_nearly_all_scenarios_are_selected() -> None:
    assert len(_selected()) == 71


@pytest.mark.parametrize("scenario", _selected(), ids=lambda scenario: f"{scenario['id']}-{scenario['theme']}")
async def test_recorded_scenario(scenario: Json, short_dir: Path) -> None:
    await _replay(scenario, short_dir, keep_known_holes=True)


@pytest.mark.parametrize(
    "scenario",
    [item for item in _selected() if not item["theme"].startswith(_HOLE)],
    ids=lambda scenario: scenario["id"],
)
async def test_only_the_hole_itself_needs_the_hole(scenario: Json, short_dir: Path) -> None:
    await _replay(scenario, short_dir, keep_known_holes=False)


async def _replay(scenario: Json, root: Path, *, keep_known_holes: bool) -> None:
    async with Scenario(scenario, root, keep_known_holes=keep_known_holes) as run:
        for number, (step, expected) in enumerate(zip(scenario["steps"], scenario["expect"], strict=True)):
            shown = await run.step(step)
            where = f"step {number} {step}"
            if "one_of" in expected:
                assert shown in [_comparable(outcome) for outcome in expected["one_of"]], where
                _check_bounds(shown, expected.get("allocated") or {})
            elif "<struct>" in str(expected.get("error")):
                pattern = ".*".join(map(re.escape, expected["error"].split("<struct>")))
                assert re.fullmatch(pattern, shown["error"]), where
            else:
                assert shown == _comparable(expected), where


def _comparable(expected: Json) -> Json:
    """The record in the form of ``Scenario``: calls of all containers in one list, without hints."""
    if "admit" not in expected:
        return expected
    calls = [call for container in expected["containers"] for call in container["rpcs"]]
    containers = [
        {key: value for key, value in container.items() if key in ("container", "devices", "error")}
        for container in expected["containers"]
    ]
    return {
        "admit": expected["admit"],
        "containers": containers,
        "rpcs": sorted(calls, key=lambda call: str(call["resource"])),
    }


def _check_bounds(shown: Json, allocated: dict[str, Json]) -> None:
    held = {
        f"{container['container']} {resource}": set(ids)
        for container in shown.get("containers", ())
        for resource, ids in container["devices"].items()
    }
    for name, bounds in allocated.items():
        ids = held.get(name, set())
        assert len(ids) in bounds["count"], name
        assert set(bounds["always"]) <= ids <= set(bounds["ever"]), name
