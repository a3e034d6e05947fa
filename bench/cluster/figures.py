"""The figures of pods' starts on a real cluster, and what is promised of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.figures import Figure, median, percentile

PREFIX = "cluster_"
"""How the names of all of these figures begin."""
PLAIN, OSTLER, FLOOR = "plain", "ostler", "floor"
KINDS = (PLAIN, OSTLER, FLOOR)
"""Pods without a device, with one of ours, and with one of a bare plugin that only answers."""
SLACK = 0.020
"""Seconds above the bare plugin that no person notices and no machine measures."""


def _figure(name: str) -> Figure:
    return Figure(f"cluster_pod_{OSTLER}_{name}", factor=1.05, above=SLACK, against=f"cluster_pod_{FLOOR}_{name}")


CLUSTER_FIGURES = (
    Figure(f"cluster_pod_{PLAIN}_p50_s"),
    Figure(f"cluster_pod_{PLAIN}_p99_s"),
    _figure("p50_s"),
    _figure("p99_s"),
    Figure(f"cluster_pod_{PLAIN}_last_of_50_s"),
    _figure("last_of_50_s"),
)


def cluster_figures(singles: Mapping[str, Sequence[float]], lasts: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """From the seconds of pods one by one, and of the last of fifty at once (a value per round), both by kind."""
    figures: dict[str, float] = {}
    for kind in KINDS:
        figures[f"cluster_pod_{kind}_p50_s"] = percentile(singles[kind], 50)
        figures[f"cluster_pod_{kind}_p99_s"] = percentile(singles[kind], 99)
        figures[f"cluster_pod_{kind}_last_of_50_s"] = median(lasts[kind])
    return figures
