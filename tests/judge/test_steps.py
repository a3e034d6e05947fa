"""Our search goes through the same steps as the scheduler's, as long as nothing is pruned."""

from __future__ import annotations

from typing import Any

from scheduling.allocator.reading import FatalError
from scheduling.allocator.search import PRUNE_AFTER, Search
from tests.judge.answers import Judge
from tests.judge.generate import allocation_case
from tests.judge.our_allocation import allocator

SEED = 12
CASES = 400
OPINIONS = 8
NEVER = 10**9


def test_steps_of_generated_cases_are_those_of_the_scheduler(judge: Judge) -> None:
    cases = [allocation_case(SEED, number) for number in range(CASES)]
    differing: list[tuple[dict[str, Any], int]] = []
    compared = 0
    for case, theirs in zip(cases, judge.answers("allocate", iter(cases)), strict=True):
        if theirs.get("steps") is None or theirs.get("errorKind") == "fatal" or theirs["steps"] > PRUNE_AFTER:
            continue
        try:
            search = Search(allocator(case).problem(case["node"]), prune_after=NEVER)
        except FatalError:
            continue
        search.run()
        compared += 1
        if search.steps != theirs["steps"]:
            differing.append((case, search.steps))
    assert compared > CASES // 3
    # The order of a map decides about some steps of the scheduler's: it is asked again.
    lasting = [
        f"{case['name']}: {steps} steps"
        for case, steps in differing
        if all(judge.answer("allocate", case).get("steps") != steps for _ in range(OPINIONS))
    ]
    assert not lasting, "\n".join(lasting)
