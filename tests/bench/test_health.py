"""The figures of health: names, targets and arithmetic; no time is measured here."""

from __future__ import annotations

import pytest

from bench.figures import checked
from bench.health.figures import HEALTH_FIGURES, PREFIX, to_list
from bench.results import HEADINGS, Benchmark, rows

SECONDS = {"xid": [0.01, 0.03, 0.02], "carrier": [0.2, 0.01, 0.01], "unbind": [0.04, 0.04, 0.04]}
OTHERS = {
    "health_polled_to_list_s": 9.0,
    "health_healed_to_list_s": 21.0,
    "health_lost_to_list_s": 2.9,
    "health_lost_healed_s": 15.1,
    "health_lost_with_xid_healed_s": 14.0,
    "health_to_taint_s": 0.3,
    "health_1000_flaps_lists": 2.0,
    "health_1000_flaps_slice_writes": 6.0,
}


def test_every_promise_of_health_has_its_target() -> None:
    targets = {figure.name: figure.target(None) for figure in HEALTH_FIGURES}
    assert targets["health_to_list_s"] == 0.05
    assert targets["health_to_taint_s"] == 0.5
    assert targets["health_polled_to_list_s"] == 10.0
    assert targets["health_1000_flaps_slice_writes"] == 5
    assert all(name.startswith(PREFIX) and Benchmark.of(name) is Benchmark.HEALTH for name in targets)


def test_the_slowest_kind_of_signal_is_the_figure() -> None:
    figures = to_list(SECONDS)
    assert figures == {
        "health_xid_to_list_s": 0.02,
        "health_carrier_to_list_s": 0.01,
        "health_unbind_to_list_s": 0.04,
        "health_to_list_s": 0.04,
        "health_to_list_worst_s": 0.2,
    }


def test_the_table_says_which_promise_is_kept() -> None:
    figures = checked({**to_list(SECONDS), **OTHERS}, HEALTH_FIGURES)
    reached = {line[0]: line[HEADINGS.index("reached")] for line in rows(figures, HEALTH_FIGURES)}
    assert reached["health_to_list_s"] == "yes"
    assert reached["health_1000_flaps_slice_writes"] == "no"
    assert reached["health_healed_to_list_s"] == ""
    assert [reached[f"health_lost_{each}_s"] for each in ("to_list", "healed", "with_xid_healed")] == [
        "yes",
        "no",
        "yes",
    ]


def test_a_figure_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match="figures are missing: health_to_taint_s"):
        checked({**to_list(SECONDS), **{name: 1 for name in OTHERS if name != "health_to_taint_s"}}, HEALTH_FIGURES)
