"""``python -m bench.adopting``: commit to the figures that were measured last.

Takes ``build/bench.json`` into bench/results.json and the tables of docs/performance.md. Nothing is written unless all
of it can be: figures of a short run, or a benchmark that lacks one of its figures, are refused. Benchmarks that were
not run keep their committed figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bench.cluster.figures import CLUSTER_FIGURES
from bench.documented import DOCUMENT, documented
from bench.doors.figures import DOORS_FIGURES
from bench.dra.figures import DRA_FIGURES
from bench.figures import FIGURES, Figure, checked, results
from bench.health.figures import HEALTH_FIGURES
from bench.results import MEASURED, RESULTS, Benchmark, read, short_figures
from bench.scale.figures import SCALE_FIGURES
from bench.sharing.figures import SHARING_FIGURES

PROMISED: Mapping[Benchmark, Sequence[Figure]] = {
    Benchmark.AGENT: FIGURES,
    Benchmark.DRA: DRA_FIGURES,
    Benchmark.CLUSTER: CLUSTER_FIGURES,
    Benchmark.HEALTH: HEALTH_FIGURES,
    Benchmark.DOORS: DOORS_FIGURES,
    Benchmark.SHARING: SHARING_FIGURES,
    Benchmark.SCALE: SCALE_FIGURES,
}
PARTLY = {Benchmark.DOORS}
"""Benchmarks whose parts are measured alone: what was not measured keeps its committed figure."""


def adopted(
    committed: Mapping[str, float], measured: Mapping[str, float], short: Collection[str] = ()
) -> dict[str, float]:
    """The figures to commit. Raises ``ValueError`` where the measured ones are not those of full runs."""
    if not measured:
        raise ValueError("there are no measured figures: run 'make bench' first")
    taken = dict(committed)
    for benchmark in Benchmark:
        own = {name: value for name, value in measured.items() if Benchmark.of(name) is benchmark}
        if not own:
            continue
        if of_short_run := sorted(own.keys() & set(short)):
            named = f"{of_short_run[0]}{' and others' if len(of_short_run) > 1 else ''}"
            raise ValueError(f"a short run measured {named}: run '{benchmark.target}' without QUICK")
        try:
            whole = checked(own, () if benchmark in PARTLY else PROMISED[benchmark])
        except ValueError as error:
            raise ValueError(f"{error}: run '{benchmark.target}' again") from error
        if benchmark not in PARTLY:
            taken = {name: value for name, value in taken.items() if Benchmark.of(name) is not benchmark}
        taken |= whole
    return taken


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 1 when the figures are refused."""
    parser = argparse.ArgumentParser(prog="bench.adopting", description="Commit to the figures measured last.")
    parser.add_argument("--measured", type=Path, default=MEASURED, metavar="FILE", help="default: build/bench.json")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="default: bench/results.json")
    parser.add_argument("--document", type=Path, default=DOCUMENT, metavar="FILE", help="default: docs/performance.md")
    arguments = parser.parse_args(words)
    try:
        figures = adopted(read(arguments.results), read(arguments.measured), short_figures(arguments.measured))
        text = documented(arguments.document.read_text(), figures)
    except (ValueError, OSError) as error:
        print(f"bench.adopting: {arguments.measured} is not taken: {error}", file=sys.stderr)
        return 1
    arguments.results.write_text(results(figures))
    arguments.document.write_text(text)
    print(f"{arguments.results} and {arguments.document} have the figures of {arguments.measured}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
