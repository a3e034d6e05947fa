"""The results' file, which several benchmarks share: each replaces its own figures and leaves those of the others."""

from __future__ import annotations

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


def write(path: Path, figures: Mapping[str, float], benchmark: Benchmark) -> None:
    """Have a benchmark's figures in the file, and of what was there only that which others have measured."""
    there: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    kept = {name: value for name, value in there.items() if Benchmark.of(name) is not benchmark}
    path.write_text(results({**kept, **figures}))
