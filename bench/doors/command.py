"""The benchmark's command: storms and conflicts, all of them or those that are named.

A part that is measured alone replaces its own figures and leaves those of the other parts. A device that was given
twice, but by the two that know nothing of each other, and a Job that did not end are defects and the exit code.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from random import Random, SystemRandom

from bench.doors.conflicts import costs
from bench.doors.figures import ALONE, CHAOS, COST_FIGURES, NAME, STORM, STORM_FIGURES, storm_figures
from bench.doors.storms import StormRun, run
from bench.figures import significant
from bench.results import Benchmark, markdown, parser, read, render, say, write
from tests.cluster.__main__ import FAULTS

JOBS, QUICK_JOBS = 500, 24
ROUNDS, QUICK_ROUNDS = 8, 1
CONFLICTS = "conflicts"
PARTS = (STORM, CHAOS, NAME, ALONE, CONFLICTS)


def main() -> int:
    """Run it; 1 when something did not work, or a device was given twice."""
    quick = "few: shows that it works, not how fast it is"
    options = parser(Benchmark.DOORS, "Pods and claims that want the same devices.", quick)
    options.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    options.add_argument("--pods", type=int, help=f"Jobs in each storm (default: {JOBS}); fewer are a short run")
    options.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="of everything random")
    arguments = options.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}; use some of {', '.join(PARTS)}")
    jobs = arguments.pods or (QUICK_JOBS if arguments.quick else JOBS)
    began = time.monotonic()
    print(f"seed {arguments.seed}")
    figures: dict[str, float] = {}
    wrong = False
    try:
        for part in arguments.parts or PARTS:
            chance = Random(f"{arguments.seed} {part}")
            if part == CONFLICTS:
                figures |= costs(QUICK_ROUNDS if arguments.quick else ROUNDS, chance, say)
                continue
            found = run(part, jobs, chance, say)
            _report(part, jobs, found)
            figures |= storm_figures(part, jobs, found.outcome)
            wrong |= part != ALONE and bool(found.outcome.doubles or found.outcome.unfinished)
    except FAULTS as error:
        print(f"bench.doors: {error}", file=sys.stderr)
        return 1
    figures = {name: significant(value) for name, value in figures.items()}
    write(arguments.output, figures, Benchmark.DOORS, quick=arguments.quick or jobs < JOBS, partly=True)
    _show(read(arguments.output), as_markdown=arguments.markdown)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return int(wrong)


def _report(part: str, jobs: int, found: StormRun) -> None:
    outcome = found.outcome
    say("")
    failed = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.failed.items())) or "none"
    blows = ", ".join(f"{count} {victim}" for victim, count in sorted(found.blows.items()))
    print(
        f"{part}: {jobs} Jobs, {outcome.ran} pods ran, {outcome.seconds:.0f} s{'; killed: ' + blows if blows else ''}"
    )
    print(f"  devices allocated twice: {len(outcome.doubles)}; Jobs that did not end: {len(outcome.unfinished)}")
    print(f"  failed pods: {failed}; evicted: {outcome.evicted}; longest idle: {outcome.idle:.1f} s")
    counted = {name: value for name, value in found.counted.items() if "conflicts" in name or "evictions" in name}
    print(f"  the agent counted: {counted}")
    if found.logs:
        print(f"  logs: {found.logs}")


def _show(known: Mapping[str, float], *, as_markdown: bool) -> None:
    shown = [each for each in (*sum(STORM_FIGURES.values(), ()), *COST_FIGURES) if each.name in known]
    print(markdown(known, shown) if as_markdown else render(known, shown))
