"""The figures of pods' starts on a real cluster, and what is promised of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.figures import Figure, median, percentile

PREFIX = "cluster_"
"""How the names of all of these figures begin."""
PLAIN, OSTLER, FLOOR, CLAIM, PEER_CLAIM = "plain", "ostler", "floor", "claim", "peer_claim"
KINDS = (PLAIN, OSTLER, FLOOR, CLAIM, PEER_CLAIM)
"""Pods without a device, with one of ours, with one of a bare plugin that only answers, with one of ours by a claim
that is made for the pod from a template, and with one of the Go driver by such a claim.
"""
SLACK = 0.020
"""Seconds above the bare plugin that no person notices and no machine measures."""
OVER_PLUGIN = f"{PREFIX}claim_over_plugin_s"
"""By how much the median of pods with a claim exceeds that of pods with a device of the bare plugin."""
CLAIM_SLACK = 0.010
"""Seconds that a claim may cost more than a device of the bare plugin."""


def _figure(name: str) -> Figure:
    return Figure(f"cluster_pod_{OSTLER}_{name}", factor=1.05, above=SLACK, against=f"cluster_pod_{FLOOR}_{name}")


def _claim_figure(name: str, factor: float) -> Figure:
    """Not behind the Go driver in the same run: ``factor`` is what equal drivers differ by from run to run."""
    return Figure(f"cluster_pod_{CLAIM}_{name}", factor=factor, against=f"cluster_pod_{PEER_CLAIM}_{name}")


def _peer_figure(name: str) -> Figure:
    return Figure(f"cluster_pod_{PEER_CLAIM}_{name}", against=f"cluster_pod_{FLOOR}_{name}")


CLUSTER_FIGURES = (
    Figure(f"cluster_pod_{PLAIN}_p50_s"),
    Figure(f"cluster_pod_{PLAIN}_p99_s"),
    _figure("p50_s"),
    _figure("p99_s"),
    Figure(f"cluster_pod_{PLAIN}_last_of_50_s"),
    _figure("last_of_50_s"),
    _claim_figure("p50_s", 1.02),
    _claim_figure("p99_s", 1.05),
    _claim_figure("last_of_50_s", 1.05),
    Figure(OVER_PLUGIN, at_most=CLAIM_SLACK),
    _peer_figure("p50_s"),
    _peer_figure("p99_s"),
    _peer_figure("last_of_50_s"),
)


def cluster_figures(singles: Mapping[str, Sequence[float]], lasts: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """From the seconds of pods one by one, and of the last of fifty at once (a value per round), both by kind."""
    figures: dict[str, float] = {}
    for kind in KINDS:
        figures[f"cluster_pod_{kind}_p50_s"] = percentile(singles[kind], 50)
        figures[f"cluster_pod_{kind}_p99_s"] = percentile(singles[kind], 99)
        figures[f"cluster_pod_{kind}_last_of_50_s"] = median(lasts[kind])
    figures[OVER_PLUGIN] = figures[f"cluster_pod_{CLAIM}_p50_s"] - figures[f"cluster_pod_{FLOOR}_p50_s"]
    return figures
