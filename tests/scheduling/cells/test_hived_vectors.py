"""The cell scheduler against what HiveD answered (tests/vectors/hived), by the rules of its README."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.making.recorded_cases import cases_in, files_in
from tests.scheduling.cells.comparison import difference

VECTORS = Path(__file__).parents[2] / "vectors" / "hived"
PARTS = 4
"""The scenarios of a file run in parts, so that workers share them."""
THEMES = sorted(file.stem for file in files_in(VECTORS, "*.jsonl") if file.stem != "http")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("theme", THEMES)
def test_every_scenario_goes_as_hived_recorded_it(theme: str, part: int) -> None:
    judged = cases_in(VECTORS / f"{theme}.jsonl")[part::PARTS]
    differing = [f"{case['name']}: {found}" for case in judged if (found := difference(case))]
    assert not differing, "\n".join([f"{len(differing)} of {len(judged)} differ", *differing])


def test_a_changed_recording_differs() -> None:
    case = copy.deepcopy(next(each for each in cases_in(VECTORS / "hand.jsonl") if each["name"] == "buddy-gang-rack"))
    assert not difference(case)
    number = next(i for i, step in enumerate(case["expect"]) if step["d"]["kind"] == "bind")
    group = next(iter(case["expect"][number]["s"]["groups"].values()))
    group["priority"] += 1
    assert f"step {number}" in difference(case)
    group["priority"] -= 1
    case["expect"][number]["d"]["bindInfo"]["node"] = "elsewhere"
    assert "bindInfo: ours" in difference(case)
