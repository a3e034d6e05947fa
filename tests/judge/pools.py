"""Compares the pools' own answers with the allocator's on generated documents, converted both ways.

``python -m tests.judge.pools --seed 1 --count 5000``

Prints the smallest case that differs, as documents, and how often each outcome came up. Exit status 1 when the two
differ.
"""

from __future__ import annotations

import argparse
import json
import sys

from hypothesis import HealthCheck, given, seed, settings

from scheduling.pools.claim_documents import Document
from scheduling.pools.reading import encode
from tests.scheduling.pools.round_trips import PoolCase, RoundTrips, cases


def main() -> int:
    """Judge as many cases as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000)
    arguments = parser.parse_args()
    trips = RoundTrips()
    last: list[PoolCase] = []

    @seed(arguments.seed)
    @settings(
        max_examples=arguments.count,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(cases())
    def judge(case: PoolCase) -> None:
        last[:] = [case]
        trips.judge(case)
        trips.judge_compiled(case)

    try:
        judge()
    except AssertionError as error:
        (case,) = last
        documents: list[Document] = [*case.pools, *case.classes, *case.others, *case.claims]
        for each in documents:
            sys.stdout.write(f"{json.dumps(encode(each))}\n")
        sys.stdout.write(f"differs: {error}\n")
        return 1
    for outcome, count in trips.counts.most_common():
        sys.stdout.write(f"{count:7} {outcome}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
