"""The benchmark's arithmetic, its results' file and its table; no time is measured here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import FIGURES, FLOOR, Figure, checked, latency_figures, percentile, results, significant
from bench.results import HEADINGS, markdown, quantity, render, rows

ALONE = {
    "allocator_1000_nodes_first_fit_last_s",
    "allocator_match_4_of_8_s",
    "allocator_one_node_8_s",
    "allocator_slow_worst_s",
    "gather_1000_nodes_s",
    "event_to_list_s",
    "explain_1000_nodes_s",
    "explain_5000_nodes_rss_bytes",
    "explain_5000_nodes_s",
    "fit_1000_nodes_rss_bytes",
    "fit_1000_nodes_s",
    "placement_unaligned_ratio",
    "pools_view_1000_nodes_rss_bytes",
    "pools_view_1000_nodes_s",
    "preferred_16_p99_s",
    "preferred_8_p99_s",
    "preferred_8_rpc_p99_s",
    "rss_idle_http_bytes",
    "scan_8_gpus_s",
    "scan_large_node_s",
    "takeover_s",
}
"""Figures that a bare plugin has not."""


def some_figures(ours: float = 1.0, floor: float = 1.0) -> dict[str, float]:
    figures = {figure.name: ours for figure in FIGURES}
    return figures | {FLOOR + figure.name: floor for figure in FIGURES if figure.name not in ALONE}


def row(name: str, figures: dict[str, float]) -> dict[str, str]:
    return next(dict(zip(HEADINGS, line, strict=True)) for line in rows(figures) if line[0] == name)


@pytest.mark.parametrize(("percent", "expected"), [(0.1, 1), (50, 50), (50.1, 51), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_the_value_of_its_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([0.25], 1) == percentile([0.25], 99) == 0.25


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_one_of_the_values_and_enough_of_them_are_not_above_it(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-9


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_percentile_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most at 100"):
        percentile([1.0], percent)


def test_latencies_become_median_and_99th_percentile() -> None:
    assert latency_figures("floor_allocate", [3.0, 1.0, 2.0]) == {
        "floor_allocate_p50_s": 2.0,
        "floor_allocate_p99_s": 3.0,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.000123456, 0.0001235),
        (0.08765432, 0.08765),
        (47_902_720, 47902720),
        (8.0, 8),
        (0.0, 0),
        (-0.00123456, -0.001235),
    ],
)
def test_a_figure_keeps_four_digits_and_whole_numbers_are_whole(value: float, expected: float) -> None:
    assert significant(value) == expected


def test_the_results_are_one_flat_sorted_object_of_numbers() -> None:
    written = results(checked(some_figures(0.123456789)))
    read = json.loads(written)
    assert all(type(value) in (int, float) for value in read.values())
    assert list(read) == sorted(read)
    assert written.endswith("}\n")


def test_every_promised_figure_is_there_for_the_agent_and_for_the_floor() -> None:
    promised = {
        "start_to_register_s",
        "register_to_first_list_s",
        "first_allocate_s",
        "allocate_p50_s",
        "allocate_p99_s",
        "allocate_cpu_s",
        "allocate_8_concurrent_p99_s",
        "change_to_list_s",
        "rss_idle_bytes",
        "rss_growth_20000_calls_bytes",
        "threads_idle",
        "cpu_idle_ratio",
    }
    committed = json.loads((Path(__file__).parents[2] / "bench" / "results.json").read_text())
    assert promised | {FLOOR + name for name in promised} <= committed.keys()
    assert checked(committed) == committed


def test_a_figure_beside_another_has_the_floor_of_that_one() -> None:
    figures = some_figures() | {"preferred_8_rpc_p99_s": 0.0021, "floor_allocate_p99_s": 0.001}
    cells = row("preferred_8_rpc_p99_s", figures)
    assert [cells[heading] for heading in ("floor", "target", "reached")] == ["1.0 ms", "<= 2.0 ms", "no"]


def test_a_missing_figure_is_named() -> None:
    figures = some_figures()
    del figures["takeover_s"]
    with pytest.raises(ValueError, match="figures are missing: takeover_s"):
        checked(figures)


def test_a_figure_that_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="no numbers: floor_cpu_idle_ratio"):
        checked(some_figures() | {"floor_cpu_idle_ratio": math.nan})


def test_a_target_is_a_factor_a_distance_or_a_number() -> None:
    assert Figure("a_s", factor=1.5).target(2.0) == 3.0
    assert Figure("a_bytes", above=12e6).target(38e6) == 50e6
    assert Figure("a_s", at_most=0.05).target(2.0) == 0.05
    assert Figure("a_s", at_most=0.05).target(None) == 0.05
    assert Figure("a_s").target(2.0) is None
    assert Figure("a_s", factor=1.5).target(None) is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("start_to_register_s", 0.1664, "166.4 ms"),
        ("allocate_p50_s", 0.000574, "574 us"),
        ("rss_idle_bytes", 47_902_720.0, "47.9 MB"),
        ("rss_growth_20000_calls_bytes", -4096.0, "-0.0 MB"),
        ("cpu_idle_ratio", 0.00162, "0.162 %"),
        ("threads_idle", 9.0, "9"),
    ],
)
def test_a_value_is_shown_in_the_unit_that_people_read(name: str, value: float, expected: str) -> None:
    assert quantity(name, value) == expected


def test_a_row_says_whether_the_target_is_reached() -> None:
    figures = some_figures() | {"start_to_register_s": 0.2, "floor_start_to_register_s": 0.08}
    missed = {"ostler": "200.0 ms", "floor": "80.0 ms", "ratio": "2.50", "target": "<= 120.0 ms", "reached": "no"}
    assert row("start_to_register_s", figures).items() >= missed.items()
    figures["start_to_register_s"] = 0.12
    assert row("start_to_register_s", figures)["reached"] == "yes"


def test_a_figure_without_floor_or_target_leaves_those_cells_empty() -> None:
    cells = row("scan_8_gpus_s", some_figures())
    assert [cells[heading] for heading in ("floor", "ratio", "target", "reached")] == ["", "", "", ""]


@pytest.mark.parametrize(("ours", "floor"), [(-1.0, 1.0), (1.0, 0.0)])
def test_numbers_that_are_not_positive_have_no_ratio(ours: float, floor: float) -> None:
    assert {line[HEADINGS.index("ratio")] for line in rows(some_figures(ours, floor))} == {""}


def test_the_table_has_a_line_for_every_figure_below_its_headings() -> None:
    lines = render(some_figures()).splitlines()
    assert len(lines) == 1 + len(FIGURES)
    assert lines[0].split() == list(HEADINGS)
    assert [line.split()[0] for line in lines[1:]] == [figure.name for figure in FIGURES]


def test_the_table_for_documents_has_as_many_cells_in_every_line() -> None:
    lines = markdown(some_figures()).splitlines()
    assert len(lines) == 2 + len(FIGURES)
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}
