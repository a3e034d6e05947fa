"""Measuring changes no source: the committed figures change by a command of their own, by full runs alone."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from bench.adopting import PROMISED, adopted, main
from bench.command import main as measure
from bench.documented import DOCUMENT
from bench.figures import FIGURES
from bench.measures import BenchEffort
from bench.results import MEASURED, RESULTS, Benchmark, read, short_figures, write

ROOT = Path(__file__).parents[2]
COMMITTED = read(RESULTS)


async def agents_figures(root: Path, effort: BenchEffort, /) -> dict[str, float]:
    """Stands in for the measuring, which takes minutes."""
    return {figure.name: 2.0 for figure in FIGURES}


def of(benchmark: Benchmark, value: float = 2.0) -> dict[str, float]:
    return {figure.name: value for figure in PROMISED[benchmark]}


class _Place:
    """Where the figures are in a test."""

    def __init__(self, folder: Path) -> None:
        self.measured, self.results, self.document = (
            folder / name for name in ("build/bench.json", "results.json", "doc.md")
        )
        self.results.write_bytes(RESULTS.read_bytes())
        self.document.write_bytes(DOCUMENT.read_bytes())

    def measure(self, *words: str) -> int:
        """``make bench``."""
        return measure(["--output", str(self.measured), *words], agents_figures)

    def adopt(self) -> int:
        """``make figures``."""
        files = {"--measured": self.measured, "--results": self.results, "--document": self.document}
        return main([str(word) for pair in files.items() for word in pair])

    def is_unchanged(self) -> bool:
        return (self.results.read_bytes(), self.document.read_bytes()) == (RESULTS.read_bytes(), DOCUMENT.read_bytes())


@pytest.fixture
def place(tmp_path: Path) -> _Place:
    return _Place(tmp_path)


def test_what_is_measured_is_where_git_does_not_see_it() -> None:
    assert MEASURED.relative_to(ROOT) == Path("build/bench.json")
    for path in (MEASURED, MEASURED.with_name("bench-quick.json")):
        subprocess.run(["git", "check-ignore", "--quiet", str(path)], cwd=ROOT, check=True)


@pytest.mark.parametrize("benchmark", Benchmark)
def test_every_benchmark_writes_there_unless_told_otherwise(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As 'python -m' runs it, but for an interpreter and its imports each time.
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [benchmark.value, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(benchmark.value, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "default: build/bench.json" in said
    assert "results.json" not in said


@pytest.mark.parametrize("benchmark", Benchmark)
def test_every_benchmark_is_run_by_a_target_of_that_name(benchmark: Benchmark) -> None:
    command, target = benchmark.target.split()
    assert command == "make"
    assert f"\n{target}: " in (ROOT / "Makefile").read_text()


def test_measuring_writes_the_figures_by_their_names_and_changes_nothing_that_is_committed(place: _Place) -> None:
    assert place.measure() == 0
    assert read(place.measured) == of(Benchmark.AGENT)
    assert short_figures(place.measured) == set()
    assert place.is_unchanged()


def test_figures_of_a_full_run_become_the_committed_ones_with_their_table(
    place: _Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.measure()
    assert place.adopt() == 0
    assert f"have the figures of {place.measured}" in capsys.readouterr().out
    others = {name: value for name, value in COMMITTED.items() if Benchmark.of(name) is not Benchmark.AGENT}
    assert json.loads(place.results.read_text()) == {**others, **of(Benchmark.AGENT)}
    assert "| takeover_s | 2000.0 ms |  |  | <= 1000.0 ms | no |" in place.document.read_text()


def test_figures_of_a_short_run_are_refused(place: _Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.measure("--quick")
    assert place.adopt() == 1
    assert capsys.readouterr().err == (
        f"bench.adopting: {place.measured} is not taken: a short run measured allocate_8_concurrent_p99_s and others: "
        "run 'make bench' without QUICK\n"
    )
    assert place.is_unchanged()


def test_a_full_run_after_a_short_one_is_taken(place: _Place) -> None:
    place.measure("--quick")
    place.measure()
    assert place.adopt() == 0
    assert not place.is_unchanged()


def test_a_short_run_of_one_benchmark_keeps_the_full_run_of_another_from_being_taken_by_mistake(place: _Place) -> None:
    place.measure()
    write(place.measured, of(Benchmark.HEALTH), Benchmark.HEALTH, quick=True)
    assert place.adopt() == 1
    assert place.is_unchanged()


def test_nothing_measured_is_nothing_to_commit_to(place: _Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.adopt() == 1
    assert "is not taken: there are no measured figures: run 'make bench' first" in capsys.readouterr().err
    assert place.is_unchanged()


def test_a_file_that_is_damaged_is_named(place: _Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.measured.parent.mkdir()
    place.measured.write_text("{")
    assert place.adopt() == 1
    assert f"{place.measured} is not taken: Expecting property name" in capsys.readouterr().err


@pytest.mark.parametrize("benchmark", [each for each in Benchmark if each is not Benchmark.DOORS])
def test_a_benchmark_that_lacks_a_figure_is_refused(benchmark: Benchmark) -> None:
    measured = of(benchmark)
    first = min(measured)
    del measured[first]
    with pytest.raises(ValueError, match=f"figures are missing: {first}: run '{benchmark.target}' again"):
        adopted(COMMITTED, measured)


def test_a_figure_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="figures are no numbers: takeover_s: run 'make bench' again"):
        adopted(COMMITTED, {**of(Benchmark.AGENT), "takeover_s": float("nan")})


def test_a_figure_that_a_benchmark_measures_no_more_is_not_kept() -> None:
    assert "gone_s" not in adopted({**COMMITTED, "gone_s": 1}, of(Benchmark.AGENT))


def test_a_part_of_the_storms_alone_keeps_the_figures_of_the_others() -> None:
    found = adopted(COMMITTED, {"doors_storm_doubles": 3})
    assert found == {**COMMITTED, "doors_storm_doubles": 3}


def test_a_part_measured_alone_stays_beside_the_other_parts_and_only_it_is_short(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write(path, {"doors_storm_doubles": 0}, Benchmark.DOORS, partly=True)
    write(path, {"doors_chaos_doubles": 0}, Benchmark.DOORS, partly=True, quick=True)
    assert read(path) == {"doors_storm_doubles": 0, "doors_chaos_doubles": 0}
    assert short_figures(path) == {"doors_chaos_doubles"}
    write(path, {"doors_chaos_doubles": 1}, Benchmark.DOORS, partly=True)
    assert short_figures(path) == set()
