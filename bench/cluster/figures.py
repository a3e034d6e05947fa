"""The figures of pods' starts on a real cluster, and what is promised of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.figures import Figure, median, percentile

PREFIX = "cluster_"
"""How the names of all of these figures begin."""
PLAIN, OSTLER, FLOOR, CLAIM = "plain", "ostler", "floor", "claim"
KINDS = (PLAIN, OSTLER, FLOOR, CLAIM)
"""Pods without a device, with one of ours, with one of a bare plugin that only answers, and with one of ours by a claim
that is made for the pod from a template.
"""
SLACK = 0.020
"""Seconds above the bare plugin that no person notices and no machine measures."""

LAST_OF_50 = 1.32
"""What fifty claims at once cost with upstream's example driver, in the slowest of several runs: 8.7 s for 6.6 s."""


def _figure(name: str) -> Figure:
    return Figure(f"cluster_pod_{OSTLER}_{name}", factor=1.05, above=SLACK, against=f"cluster_pod_{FLOOR}_{name}")


def _claim_figure(name: str, factor: float) -> Figure:
    return Figure(f"cluster_pod_{CLAIM}_{name}", factor=factor, above=SLACK, against=f"cluster_pod_{PLAIN}_{name}")


CLUSTER_FIGURES = (
    Figure(f"cluster_pod_{PLAIN}_p50_s"),
    Figure(f"cluster_pod_{PLAIN}_p99_s"),
    _figure("p50_s"),
    _figure("p99_s"),
    Figure(f"cluster_pod_{PLAIN}_last_of_50_s"),
    _figure("last_of_50_s"),
    _claim_figure("p50_s", 1.05),
    _claim_figure("p99_s", 1.05),
    _claim_figure("last_of_50_s", LAST_OF_50),
)


def cluster_figures(singles: Mapping[str, Sequence[float]], lasts: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """From the seconds of pods one by one, and of the last of fifty at once (a value per round), both by kind."""
    figures: dict[str, float] = {}
    for kind in KINDS:
        figures[f"cluster_pod_{kind}_p50_s"] = percentile(singles[kind], 50)
        figures[f"cluster_pod_{kind}_p99_s"] = percentile(singles[kind], 99)
        figures[f"cluster_pod_{kind}_last_of_50_s"] = median(lasts[kind])
    return figures
