"""Our answers are Kubernetes' answers on generated cases; ``make judge`` tries many more."""

from __future__ import annotations

import pytest

from tests.judge.answers import Judge
from tests.judge.fuzz import Contest, allocation_contest, cel_contest, compare, differs

SEED = 2
ALLOCATIONS, EXPRESSIONS = 300, 1_000


def disagreements(contest: Contest, judge: Judge, count: int) -> list[str]:
    """A line for each case that is answered otherwise."""
    tally = compare(contest, judge, contest.cases(SEED, 0, count))
    return [f"{case['name']}: {'; '.join(lines)}" for case, lines in tally.differing if differs(contest, judge, case)]


@pytest.mark.parametrize(
    ("contest", "count"),
    [
        pytest.param(allocation_contest(), ALLOCATIONS, id="allocations"),
        pytest.param(cel_contest(), EXPRESSIONS, id="expressions"),
    ],
)
def test_generated_cases_are_answered_as_kubernetes_does(judge: Judge, contest: Contest, count: int) -> None:
    found = disagreements(contest, judge, count)
    assert not found, "\n".join([f"{len(found)} of {count} differ (python -m tests.judge.fuzz shrinks them)", *found])
