"""A benchmark's run and its figures: their file, their table for people, and the benchmark's words meanwhile.

A missed target is a fact about a machine and never an error; the exit code is 1 only when something did not work.

Each benchmark replaces its own figures in the file and keeps the others'. They write ``build/bench.json``, which
git ignores, so that a measurement changes no source. The committed figures (``bench/results.json``) change by
``bench.adopting`` alone. Both are one flat object of numbers. A file beside the measured ones says which of them are
of a short run, because such figures say nothing about speed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from bench.cluster.figures import PREFIX
from bench.doors.figures import PREFIX as DOORS
from bench.dra.figures import NAMES
from bench.figures import FIGURES, FLOOR, Figure, checked, results
from bench.health.figures import PREFIX as HEALTH
from bench.scale.figures import PREFIX as SCALE
from bench.sharing.figures import PREFIX as SHARING
from tests.making.cache import alone_in

RESULTS = Path(__file__).parent / "results.json"
"""The committed figures."""
MEASURED = Path(__file__).parents[1] / "build" / "bench.json"
"""The figures that this machine measured last."""
HEADINGS = ("figure", "ostler", "floor", "ratio", "target", "reached")


class Benchmark(Enum):
    """Who measures a figure."""

    AGENT = "bench"
    DRA = "bench.dra"
    CLUSTER = "bench.cluster"
    HEALTH = "bench.health"
    DOORS = "bench.doors"
    SHARING = "bench.sharing"
    SCALE = "bench.scale"

    @classmethod
    def of(cls, name: str) -> Benchmark:
        """That which measures the figure of this name."""
        if name in NAMES:
            return cls.DRA
        if name.startswith(HEALTH):
            return cls.HEALTH
        if name.startswith(DOORS):
            return cls.DOORS
        if name.startswith(SHARING):
            return cls.SHARING
        if name.removeprefix(FLOOR).startswith(SCALE):
            return cls.SCALE
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


def run(
    benchmark: Benchmark,
    arguments: argparse.Namespace,
    measure: Callable[[Path], Mapping[str, float]],
    faults: tuple[type[Exception], ...],
    shown: Sequence[Figure] = FIGURES,
) -> int:
    """Measure with files in a new folder, show the table and write the figures; 1 when something did not work."""
    # Short, because sockets' paths may have 107 bytes only.
    root = Path(tempfile.mkdtemp(prefix="ostler-bench-", dir="/tmp"))
    began = time.monotonic()
    try:
        figures = checked(measure(root), shown)
    except faults as error:
        say("")
        print(f"{benchmark.value}: {error}\n{benchmark.value}: logs are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    say("")
    print(markdown(figures, shown) if arguments.markdown else render(figures, shown))
    write(arguments.output, figures, benchmark, quick=arguments.quick)
    print(f"\n{arguments.output} written after {time.monotonic() - began:.0f} s")
    return 0


def has_compiler(benchmark: Benchmark) -> bool:
    """Whether the stub NVML library can be compiled; says so if not."""
    if shutil.which("gcc") is None:
        print(f"{benchmark.value}: gcc is not installed: the stub NVML library cannot be compiled", file=sys.stderr)
        return False
    return True


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
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        kept = {name: value for name, value in read(path).items() if partly or Benchmark.of(name) is not benchmark}
        short = short_figures(path) & kept.keys() - figures.keys()
        _beside(path).write_text(json.dumps(sorted(short | (figures.keys() if quick else set()))) + "\n")
        path.write_text(results({**kept, **figures}))


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}-quick.json")


def rows(figures: Mapping[str, float], shown: Sequence[Figure] = FIGURES) -> list[tuple[str, ...]]:
    """One row a figure: what it is, the agent's, the floor's, their ratio, the most it may be, and whether it is."""
    return [_row(figure, figures[figure.name], figures.get(figure.floor_name)) for figure in shown]


def render(figures: Mapping[str, float], shown: Sequence[Figure] = FIGURES) -> str:
    """The table as text, columns aligned."""
    lines = [HEADINGS, *rows(figures, shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_aligned(line, widths) for line in lines)


def markdown(figures: Mapping[str, float], shown: Sequence[Figure] = FIGURES) -> str:
    """The table for a document."""
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *rows(figures, shown)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def quantity(name: str, value: float) -> str:
    """A value with a unit that people read: a figure's name ends in its SI unit."""
    if name.endswith("_s"):
        return f"{value * 1e6:.0f} us" if abs(value) < 0.001 else f"{value * 1e3:.1f} ms"
    if name.endswith("_bytes"):
        return f"{value / 1e6:.1f} MB"
    return f"{value * 100:.3f} %" if name.endswith("_ratio") else f"{value:g}"


def _row(figure: Figure, ours: float, floor: float | None) -> tuple[str, ...]:
    target = figure.target(floor)
    name = figure.name
    # Growth may be zero or negative, and a ratio of such numbers says nothing.
    comparable = floor is not None and floor > 0 and ours > 0 and "growth" not in name
    return (
        name,
        quantity(name, ours),
        "" if floor is None else quantity(name, floor),
        f"{ours / floor:.2f}" if comparable and floor is not None else "",
        "" if target is None else f"<= {quantity(name, target)}",
        "" if target is None else "yes" if ours <= target else "no",
    )


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join((first, *rest)).rstrip()


def say(what: str) -> None:
    """Show it on one line that is overwritten; nothing where nobody looks."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what}")
        sys.stderr.flush()
