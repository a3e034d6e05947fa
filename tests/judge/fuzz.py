"""Compares our answers with Kubernetes' on generated cases.

``python -m tests.judge.fuzz allocate --seed 1 --count 1000``

Prints every difference as a case made as small as possible, and what all cases were, so that a generator that has
become blind is noticed. Exit status 1 when there was a difference.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.judge.answers import Judge
from tests.judge.chance import Json
from tests.judge.comparison import allocation_differences, cel_differences, cel_verdict, unjudged
from tests.judge.expressions import Expressions
from tests.judge.generate import allocation_case
from tests.judge.shrink import shrunk

OPINIONS = 8
"""How often the judge is asked about a difference: some of its answers depend on the order of a map."""
LONGEST = 3
SHOWN = 8
"""Kinds of differences of which one is shown in full; of the others a line."""


class Comparison(Enum):
    """Our answer beside those of a judge who is asked again and again: some depend on the order of a map."""

    AGREES = "agrees"
    DIFFERS = "differs from every answer, which is always the same"
    ONE_OPINION = "is one of several answers of Kubernetes"
    OTHER_OPINION = "is none of several answers of Kubernetes that were seen"
    UNJUDGED = "cannot be compared: Kubernetes does not answer"


@dataclass(frozen=True, slots=True)
class Contest:
    """One kind of cases: how they are made, answered and compared."""

    kind: str
    cases: Callable[[int, int, int], Iterator[Json]]
    ours: Callable[[Json], Json]
    differences: Callable[[Json, Json], list[str]]
    verdict: Callable[[Json], str]


@dataclass(slots=True)
class Tally:
    """What came of the cases."""

    verdicts: Counter[str] = field(default_factory=Counter)
    differing: list[tuple[Json, list[str]]] = field(default_factory=list)
    seconds: list[tuple[float, str]] = field(default_factory=list)


def allocation_contest() -> Contest:
    """The allocator, with and without pruning, against the scheduler's."""
    from tests.judge.our_allocation import allocate_three_ways

    return Contest("allocate", allocation_cases, allocate_three_ways, allocation_differences, _allocation_verdict)


def cel_contest(*, cost: bool = True) -> Contest:
    """CEL against Kubernetes'; `cost`: costs and estimates must be equal as well."""
    from tests.judge.our_cel import evaluate

    def differences(ours: Json, theirs: Json) -> list[str]:
        return cel_differences(ours, theirs, cost=cost)

    return Contest("cel", cel_cases, evaluate, differences, cel_verdict)


def compare(contest: Contest, judge: Judge, cases: Iterator[Json]) -> Tally:
    """Answer and compare all cases."""
    tally = Tally()
    kept: list[Json] = []

    def remembered() -> Iterator[Json]:
        for case in cases:
            kept.append(case)
            yield case

    for theirs in judge.answers(contest.kind, remembered()):
        case = kept.pop(0)
        missing = unjudged(theirs)
        tally.verdicts[missing or contest.verdict(theirs)] += 1
        start = time.perf_counter()
        ours = answered(contest, case)
        tally.seconds.append((time.perf_counter() - start, case["name"]))
        if "crash" in ours:
            tally.differing.append((case, [ours["crash"]]))
        elif not missing and (differing := contest.differences(ours, theirs)):
            tally.differing.append((case, differing))
    return tally


def answered(contest: Contest, case: Json) -> Json:
    """Our answer; an exception that is no answer becomes one that equals nothing."""
    try:
        return contest.ours(case)
    except Exception as error:  # noqa: BLE001 - the report tells it
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {"crash": f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"}


def smallest(contest: Contest, judge: Judge, case: Json) -> Json:
    """The case, shrunk while the answers differ."""
    return shrunk(case, lambda smaller: differs(contest, judge, smaller))


def differs(contest: Contest, judge: Judge, case: Json) -> bool:
    """Whether our answer is another one, or none; where the judge itself is of several minds, it is not."""
    return compared(contest, judge, case) is Comparison.DIFFERS


def compared(contest: Contest, judge: Judge, case: Json) -> Comparison:
    """Our answer beside several of the judge's."""
    ours = answered(contest, case)
    if "crash" in ours:
        return Comparison.DIFFERS
    first = judge.answer(contest.kind, case)
    if unjudged(first):
        return Comparison.UNJUDGED
    agrees = not contest.differences(ours, first)
    varies = False
    for _ in range(OPINIONS - 1):
        theirs = judge.answer(contest.kind, case)
        if unjudged(theirs):
            return Comparison.UNJUDGED
        agrees = agrees or not contest.differences(ours, theirs)
        varies = varies or bool(contest.differences(first, theirs))
    if varies:
        return Comparison.ONE_OPINION if agrees else Comparison.OTHER_OPINION
    return Comparison.AGREES if agrees else Comparison.DIFFERS


def allocation_cases(seed: int, start: int, count: int) -> Iterator[Json]:
    """Cases `start` and following of a seed."""
    return (allocation_case(seed, number) for number in range(start, start + count))


def cel_cases(seed: int, start: int, count: int) -> Iterator[Json]:
    """Cases `start` and following of a seed."""
    for number in range(start, start + count):
        yield Expressions(seed, number).case(f"generated-{seed}-{number}")


def _allocation_verdict(answer: Json) -> str:
    if answer.get("errorKind"):
        return f"{answer['errorKind']} error"
    return "allocated" if answer.get("results") is not None else "no allocation"


def report(contest: Contest, judge: Judge, tally: Tally) -> None:
    """Print what differs, and a summary."""
    again = {case["name"]: compared(contest, judge, case) for case, _ in tally.differing}
    tally.differing = [each for each in tally.differing if again[each[0]["name"]] is Comparison.DIFFERS]
    shown = _first_of_each_kind(tally.differing)
    for case in shown:
        _show(contest, judge, case)
    for case, lines in tally.differing:
        if case not in shown:
            print(f"--- {case['name']}: {lines[0][:200]}")
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in tally.verdicts.most_common())
    print(f"{len(tally.differing)} of {tally.verdicts.total()} cases differ ({verdicts})")
    for opinion, count in Counter(again.values()).items():
        if opinion is not Comparison.DIFFERS:
            print(f"{count} differed once, and asked {OPINIONS} times ours {opinion.value}")
    longest = sorted(tally.seconds, reverse=True)[:LONGEST]
    print("ours took longest on", ", ".join(f"{name} ({took:.3f} s)" for took, name in longest))


def _first_of_each_kind(differing: list[tuple[Json, list[str]]]) -> list[Json]:
    """Up to SHOWN cases whose first difference is not the same apart from numbers and quoted text."""
    kinds: dict[str, Json] = {}
    for case, lines in differing:
        kinds.setdefault(re.sub(r"\d+|'.*?'|\(.*\)|True|False|_error.*", "", lines[0]), case)
    return list(kinds.values())[:SHOWN]


def _show(contest: Contest, judge: Judge, case: Json) -> None:
    small = smallest(contest, judge, case)
    theirs = judge.answer(contest.kind, small)
    ours = answered(contest, small)
    print(f"--- {case['name']}")
    print(json.dumps(small, ensure_ascii=False))
    print("ours:  ", json.dumps(ours, ensure_ascii=False, default=str))
    print("theirs:", json.dumps(theirs, ensure_ascii=False))
    for line in contest.differences(ours, theirs):
        print("  ", line)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.fuzz", description=__doc__)
    parser.add_argument("kind", choices=("allocate", "cel"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--start", type=int, default=0, help="number of the first case of the seed (a case's name ends with its own)"
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--no-cost", action="store_true", help="do not compare costs of CEL")
    given = parser.parse_args()
    contest = allocation_contest() if given.kind == "allocate" else cel_contest(cost=not given.no_cost)
    with Judge() as judge:
        tally = compare(contest, judge, contest.cases(given.seed, given.start, given.count))
        report(contest, judge, tally)
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main())
