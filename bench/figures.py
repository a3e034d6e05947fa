"""The figures: their names, units and targets, and the arithmetic behind them. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FLOOR = "floor_"
"""Before a figure's name: the same of the bare plugin."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the agent in SI units.

    Its target is ``factor`` times the floor's, ``above`` more than the floor's (where both: the larger), or
    ``at_most`` a number; none of them: it is shown only. ``beside``: the floor's figure that it stands beside where
    that is another one; ``against``: the whole name of that figure. Megabytes of targets are 10^6 bytes.
    """

    name: str
    factor: float | None = None
    above: float | None = None
    at_most: float | None = None
    beside: str = ""
    against: str = ""

    @property
    def floor_name(self) -> str:
        """Name of the floor's figure."""
        return self.against or FLOOR + (self.beside or self.name)

    def target(self, floor: float | None) -> float | None:
        """The most this figure may be, None when nothing is promised."""
        if self.at_most is not None or floor is None:
            return self.at_most
        allowed = [] if self.factor is None else [self.factor * floor]
        allowed += [] if self.above is None else [floor + self.above]
        return max(allowed, default=None)


FIGURES = (
    Figure("start_to_register_s", factor=1.5),
    Figure("register_to_first_list_s"),
    Figure("first_allocate_s", at_most=0.005),
    Figure("loop_held_up_s", at_most=0.010),
    Figure("allocate_p50_s", factor=1.5),
    Figure("allocate_p99_s", factor=1.5),
    Figure("allocate_cpu_s", at_most=0.0005),
    Figure("allocate_8_concurrent_p99_s"),
    Figure("preferred_8_p99_s", at_most=0.001),
    Figure("preferred_16_p99_s", at_most=0.020),
    Figure("preferred_8_rpc_p99_s", above=0.001, beside="allocate_p99_s"),
    Figure("placement_unaligned_ratio", at_most=0.055),
    Figure("change_to_list_s", at_most=0.050),
    Figure("event_to_list_s", at_most=1.0),
    Figure("scan_8_gpus_s"),
    Figure("scan_large_node_s", at_most=0.1),
    Figure("takeover_s", at_most=1.0),
    Figure("allocator_one_node_8_s", at_most=0.005),
    Figure("allocator_match_4_of_8_s", at_most=0.005),
    Figure("allocator_1000_nodes_first_fit_last_s", at_most=0.06),
    Figure("allocator_slow_worst_s", at_most=0.05),
    Figure("gather_1000_nodes_s"),
    Figure("explain_1000_nodes_s", at_most=2.0),
    Figure("explain_5000_nodes_s", at_most=4.0),
    Figure("explain_5000_nodes_rss_bytes", at_most=400e6),
    Figure("pools_view_1000_nodes_s", at_most=2.0),
    Figure("pools_view_1000_nodes_rss_bytes", at_most=300e6),
    Figure("fit_1000_nodes_s", at_most=2.0),
    Figure("fit_1000_nodes_rss_bytes", at_most=300e6),
    Figure("cells_read_1000_nodes_s"),
    Figure("cells_start_1000_nodes_s"),
    Figure("cells_schedule_1000_nodes_p50_s", at_most=0.001),
    Figure("cells_schedule_1000_nodes_p99_s"),
    Figure("cells_schedule_1000_nodes_worst_s", at_most=0.15),
    Figure("cells_replay_5000_pods_s", at_most=2.0),
    Figure("extender_start_5000_pods_s"),
    Figure("extender_recovery_5000_pods_s"),
    Figure("extender_filter_p50_s"),
    Figure("extender_filter_p99_s", at_most=0.02),
    Figure("extender_filter_worst_s"),
    Figure("extender_filter_whole_nodes_p99_s"),
    Figure("extender_bind_p99_s"),
    Figure("extender_rss_bytes"),
    Figure("extender_rss_peak_bytes", at_most=200e6),
    Figure("rss_idle_bytes", above=12e6),
    Figure("rss_idle_http_bytes"),
    Figure("rss_growth_20000_calls_bytes", at_most=2e6),
    Figure("threads_idle"),
    Figure("cpu_idle_ratio", at_most=0.0015),
)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of 100 of the values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values, no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile lies above 0 and at most at 100, not at {percent:g}")
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def latency_figures(prefix: str, latencies: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {f"{prefix}_p50_s": percentile(latencies, 50), f"{prefix}_p99_s": percentile(latencies, 99)}


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    return statistics.median(values)


def significant(value: float, digits: int = 4) -> float:
    """``value`` with so many digits, whole numbers as they are: more digits would only be noise in a diff."""
    if value == 0 or isinstance(value, int) or value.is_integer():
        return int(value)
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))


def checked(figures: Mapping[str, float], promised: Sequence[Figure] = FIGURES) -> dict[str, float]:
    """The figures sorted by name and rounded; raises ``ValueError`` for a name that is missing or no number."""
    missing = {figure.name for figure in promised} - figures.keys()
    if missing:
        raise ValueError(f"figures are missing: {', '.join(sorted(missing))}")
    broken = sorted(name for name, value in figures.items() if not math.isfinite(value))
    if broken:
        raise ValueError(f"figures are no numbers: {', '.join(broken)}")
    return {name: significant(figures[name]) for name in sorted(figures)}


def results(figures: Mapping[str, float]) -> str:
    """The results' file: one flat JSON object, a line a figure, so that a change reads well as a diff."""
    return json.dumps(dict(figures), indent=2, sort_keys=True) + "\n"
