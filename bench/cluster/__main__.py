"""``python -m bench.cluster [--quick]``: pods' starts on a real cluster; adds its figures to build/bench.json."""

from __future__ import annotations

import sys
import time

from bench.cluster.figures import CLUSTER_FIGURES, cluster_figures
from bench.cluster.stage import stage
from bench.cluster.starts import AT_ONCE, PodFailed, at_once, one_by_one
from bench.figures import significant
from bench.results import Benchmark, markdown, parser, render, say, write
from tests.cluster.__main__ import FAULTS

FEW = 10
"""Pods at once in a short run."""


def main() -> int:
    quick = f"few pods, and {FEW} at once in place of {AT_ONCE}: shows that it works, not how fast it is"
    arguments = parser(Benchmark.CLUSTER, "Measure pods' starts on a real cluster.", quick).parse_args()
    began = time.monotonic()
    try:
        with stage() as made:
            singles = one_by_one(made, 3 if arguments.quick else 40, say)
            lasts = at_once(made, 1, say, FEW) if arguments.quick else at_once(made, 3, say)
    except (PodFailed, *FAULTS) as error:
        print(f"bench.cluster: {error}", file=sys.stderr)
        return 1
    say("")
    figures = {name: significant(value) for name, value in cluster_figures(singles, lasts).items()}
    print(markdown(figures, CLUSTER_FIGURES) if arguments.markdown else render(figures, CLUSTER_FIGURES))
    write(arguments.output, figures, Benchmark.CLUSTER, quick=arguments.quick)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
