"""The figures that docs/performance.md tells are those that were measured last."""

from __future__ import annotations

import json

import pytest

from bench.documented import DOCUMENT, documented
from bench.figures import FIGURES
from bench.results import RESULTS, Benchmark

TEXT = DOCUMENT.read_text()
FIGURES_NOW = json.loads(RESULTS.read_text())


def test_the_tables_are_those_of_the_results() -> None:
    assert documented(TEXT, FIGURES_NOW) == TEXT, "run 'make docs'"


def test_another_figure_changes_its_row_and_nothing_else() -> None:
    before = TEXT.splitlines()
    after = documented(TEXT, {**FIGURES_NOW, "scan_large_node_s": 0.1234}).splitlines()
    (changed,) = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed.startswith("| scan_large_node_s | 123.4 ms |")


def test_a_table_of_which_nothing_was_measured_stays_as_it_is() -> None:
    without = {name: value for name, value in FIGURES_NOW.items() if Benchmark.of(name) is not Benchmark.HEALTH}
    assert documented(TEXT, without) == TEXT


def test_a_table_of_no_benchmark_is_refused() -> None:
    text = TEXT.replace(f"| {FIGURES[0].name} |", "| nonsense_s |")
    with pytest.raises(ValueError, match="the table that begins with nonsense_s is of no benchmark, or is there twice"):
        documented(text, FIGURES_NOW)


def test_a_benchmark_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=f"there is no table for {FIGURES[0].name}, "):
        documented("nothing", FIGURES_NOW)
