"""The measured figures' file, which several benchmarks share: each replaces its own figures and leaves the others'.

Benchmarks write ``build/bench.json``, which git ignores, so that whoever measures changes no source. The committed
figures (``bench/results.json``) change by ``bench.adopting`` alone. Both are one flat object of numbers; which figures
a short run measured is in a file beside the measured ones, because such figures say nothing about speed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from bench.cluster.figures import PREFIX
from bench.doors.figures import PREFIX as DOORS
from bench.dra.figures import NAMES
from bench.figures import results
from bench.health.figures import PREFIX as HEALTH

RESULTS = Path(__file__).parent / "results.json"
"""The committed figures."""
MEASURED = Path(__file__).parents[1] / "build" / "bench.json"
"""The figures that this machine measured last."""


class Benchmark(Enum):
    """Who measures a figure."""

    AGENT = "bench"
    DRA = "bench.dra"
    CLUSTER = "bench.cluster"
    HEALTH = "bench.health"
    DOORS = "bench.doors"

    @classmethod
    def of(cls, name: str) -> Benchmark:
        """That which measures the figure of this name."""
        if name in NAMES:
            return cls.DRA
        if name.startswith(HEALTH):
            return cls.HEALTH
        if name.startswith(DOORS):
            return cls.DOORS
        return cls.CLUSTER if name.startswith(PREFIX) else cls.AGENT

    @property
    def target(self) -> str:
        """How people run it."""
        _, _, part = self.value.partition(".")
        return f"make {part}-bench" if part else "make bench"


def parser(benchmark: Benchmark, description: str, quick: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have; ``quick`` says what the short form leaves out."""
    made = argparse.ArgumentParser(prog=benchmark.value, description=description)
    made.add_argument("--quick", action="store_true", help=f"{quick}; such figures are never committed")
    made.add_argument("--output", type=Path, default=MEASURED, metavar="FILE", help="default: build/bench.json")
    made.add_argument("--markdown", action="store_true", help="print the table as docs/performance.md has it")
    return made


def read(path: Path) -> dict[str, float]:
    """The figures of a file; none where it is not there."""
    found: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return found


def short_figures(path: Path) -> set[str]:
    """Names of the figures in ``path`` that a short run measured."""
    beside = _beside(path)
    return set(json.loads(beside.read_text())) if beside.exists() else set()


def write(
    path: Path, figures: Mapping[str, float], benchmark: Benchmark, *, quick: bool = False, partly: bool = False
) -> None:
    """Put a benchmark's figures into the file, and keep those of the other benchmarks.

    ``partly``: the benchmark's other figures stay, too. ``quick``: a short run measured these.
    """
    kept = {name: value for name, value in read(path).items() if partly or Benchmark.of(name) is not benchmark}
    short = short_figures(path) & kept.keys() - figures.keys()
    path.parent.mkdir(parents=True, exist_ok=True)
    _beside(path).write_text(json.dumps(sorted(short | (figures.keys() if quick else set()))) + "\n")
    path.write_text(results({**kept, **figures}))


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}-quick.json")
