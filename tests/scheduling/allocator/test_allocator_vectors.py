"""The allocator against what the scheduler's answered (tests/vectors/allocator), by the rules of its README."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from scheduling.allocator.reading import GaveUp
from tests.judge.comparison import allocation_differences, expected
from tests.judge.our_allocation import allocate, allocator
from tests.making.recorded_cases import cases_in, files_in

VECTORS = Path(__file__).parents[2] / "vectors" / "allocator"
THEMES = sorted(file.stem for file in files_in(VECTORS, "*.jsonl") if file.stem != "slow")
SLOW_S = 1.0
"""Most time for a search that takes Kubernetes 2 s to minutes; many times what it takes on an idle machine."""
PATIENCE_S = 1.0


def cases(theme: str) -> list[dict[str, Any]]:
    """The lines of one file."""
    return cases_in(VECTORS / f"{theme}.jsonl")


@pytest.mark.parametrize("theme", THEMES)
def test_every_case_is_answered_as_kubernetes_does(theme: str) -> None:
    differing = []
    judged = cases(theme)
    assert judged
    for case in judged:
        answer = expected(case)
        assert answer is not None
        differences = allocation_differences(allocate(case), answer)
        if differences:
            differing.append(f"{case['name']}: {'; '.join(differences)}")
    assert not differing, "\n".join([f"{len(differing)} of {len(judged)} differ", *differing])


SLOW = cases("slow")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in SLOW if expected(case) is not None])
def test_search_that_takes_kubernetes_long_is_answered_at_once(case: dict[str, Any]) -> None:
    answer = expected(case)
    assert answer is not None
    start = time.process_time()
    assert allocation_differences(allocate(case), answer) == []
    assert time.process_time() - start < SLOW_S


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in SLOW if expected(case) is None])
def test_search_whose_answer_nobody_knows_ends_when_patience_does(case: dict[str, Any]) -> None:
    start = time.process_time()
    asked = allocator(case, give_up=lambda: time.process_time() - start > PATIENCE_S)
    try:
        asked.allocate(case["node"])
    except GaveUp as error:
        assert error.object.kind == "ResourceClaim"  # noqa: PT017 - an answer is as good as giving up
    assert time.process_time() - start < PATIENCE_S + SLOW_S
