"""``python -m bench.cluster [--quick]``: pods' starts on a real cluster; adds its figures to bench/results.json."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.cluster.figures import CLUSTER_FIGURES, cluster_figures
from bench.cluster.stage import stage
from bench.cluster.starts import PodFailed, at_once, one_by_one
from bench.figures import significant
from bench.progress import say
from bench.results import RESULTS, Benchmark, write
from bench.table import markdown, render
from tests.cluster.__main__ import FAULTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few pods: says that it works, not how quick it is")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="default: bench/results.json")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/performance.md has it")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        with stage() as made:
            singles = one_by_one(made, 3 if arguments.quick else 50, say)
            lasts = at_once(made, 1 if arguments.quick else 3, say)
    except (PodFailed, *FAULTS) as error:
        print(f"bench.cluster: {error}", file=sys.stderr)
        return 1
    say("")
    figures = {name: significant(value) for name, value in cluster_figures(singles, lasts).items()}
    print(markdown(figures, CLUSTER_FIGURES) if arguments.markdown else render(figures, CLUSTER_FIGURES))
    write(arguments.output, figures, Benchmark.CLUSTER)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
