"""Every case of the allocator's vectors explained: the scheduler's verdict, and never without a reason."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ostler.explain.forms import document, draw
from scheduling.allocator.pools import SliceIndex
from scheduling.explain.cluster import Cluster
from scheduling.explain.obstacles import Held, Tainted
from scheduling.explain.verdict import Explanation, FindingGroup, NodeFinding, NodeOutcome
from tests.judge import our_allocation as given
from tests.judge.comparison import expected
from tests.making.diagnoses import diagnose
from tests.making.explain_schema import form
from tests.making.recorded_cases import cases_in, files_in

VECTORS = Path(__file__).parents[2] / "vectors" / "allocator"
THEMES = sorted(file.stem for file in files_in(VECTORS, "*.jsonl") if file.stem != "slow")
FORM = jsonschema.Draft202012Validator(form())


@functools.cache
def explained(theme: str) -> list[tuple[dict[str, Any], Cluster, NodeFinding]]:
    """Every case of a theme, which several tests look at."""
    found = []
    for case in cases_in(VECTORS / f"{theme}.jsonl"):
        index = SliceIndex(case["slices"])
        cluster = Cluster(index, given.classes(case), given.allocated(case), given.features(case))
        found.append((case, cluster, diagnose(case["claims"], case["node"], cluster)))
    return found


def outcome(case: dict[str, Any]) -> NodeOutcome:
    answer = expected(case)
    assert answer is not None
    if answer["results"] is not None:
        return NodeOutcome.FITS
    return NodeOutcome.ERROR if answer["errorKind"] == "fatal" else NodeOutcome.BLOCKED


def has_reason(finding: NodeFinding) -> bool:
    """Obstacles, or fewer devices than are wanted."""
    told = [*finding.obstacles, *(one for request in finding.requests for one in request.obstacles)]
    short = any(request.usable < (request.wanted or 1) for request in finding.requests)
    return bool(told) or short


@pytest.mark.parametrize("theme", THEMES)
def test_the_verdict_is_the_schedulers_and_has_a_reason(theme: str) -> None:
    wrong = []
    for case, _, finding in explained(theme):
        if finding.outcome is not outcome(case):
            wrong.append(f"{case['name']}: {finding.outcome} instead of {outcome(case)}")
        elif finding.outcome is not NodeOutcome.FITS and not has_reason(finding):
            wrong.append(f"{case['name']}: no reason")
    assert wrong == []


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme.startswith("hand-")])
def test_every_finding_can_be_shown(theme: str) -> None:
    for _, _, finding in explained(theme):
        verdict = Explanation("claim x", (FindingGroup((finding.node,), finding),))
        assert draw(verdict, width=80, colour=True)
        errors: Callable[[object], Iterator[object]] = FORM.iter_errors
        assert list(errors(json.loads(json.dumps(document(verdict))))) == []


@pytest.mark.parametrize("theme", ["random-core", "random-taints", "random-mixed", "random-capacity"])
def test_devices_that_are_told_to_be_held_or_tainted_are(theme: str) -> None:
    for case, cluster, finding in explained(theme):
        held = {device.device for device in cluster.allocated.devices}
        tainted = {
            one["name"] for body in case["slices"] for one in body["spec"].get("devices", []) if one.get("taints")
        }
        for request in finding.requests:
            for obstacle in request.obstacles:
                names = {name.rpartition("/")[2] for name in getattr(obstacle, "devices", ())}
                if isinstance(obstacle, Held):
                    assert names <= held
                if isinstance(obstacle, Tainted):
                    assert names <= tainted


SLOW = cases_in(VECTORS / "slow.jsonl")


@pytest.mark.parametrize("case", SLOW, ids=[case["name"] for case in SLOW])
@pytest.mark.parametrize("patient", [False, True])
def test_without_patience_no_answer_is_made_up(case: dict[str, Any], patient: bool) -> None:
    def patience(what_if: bool) -> Callable[[], bool]:
        return lambda: not (patient and what_if)

    index = SliceIndex(case["slices"])
    cluster = Cluster(index, given.classes(case), given.allocated(case), given.features(case), patience=patience)
    finding = diagnose(case["claims"], case["node"], cluster, remedy=False)
    # What is proved of a part of the claims holds for all of them; else nothing is said but that nothing is known.
    assert finding.outcome in (NodeOutcome.BLOCKED, NodeOutcome.ERROR, NodeOutcome.UNKNOWN)
    assert has_reason(finding)
