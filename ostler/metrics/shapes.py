"""Families of a few shapes, so that those who fill them only say names, labels and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from ostler.metrics.counters import Histogram

Labels = tuple[str, ...]
Key = TypeVar("Key", bound=tuple[str, ...])
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)
Samples = Iterable[tuple[Labels, float]]
"""The values of the labels in their order, and the number."""


def gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    """One number that goes up and down."""
    return GaugeMetricFamily(name, meaning, value=value)


def gauges(name: str, meaning: str, labels: Labels, samples: Samples) -> GaugeMetricFamily:
    """Such numbers with labels."""
    return _filled(GaugeMetricFamily(name, meaning, labels=labels), samples)


def counter(name: str, meaning: str, value: float) -> CounterMetricFamily:
    """One number that only grows; ``name`` without ``_total``."""
    return CounterMetricFamily(name, meaning, value=value)


def counters(name: str, meaning: str, labels: Labels, samples: Samples) -> CounterMetricFamily:
    """Such numbers with labels."""
    return _filled(CounterMetricFamily(name, meaning, labels=labels), samples)


def histograms(
    name: str, meaning: str, labels: Labels, samples: Iterable[tuple[Labels, Histogram]]
) -> HistogramMetricFamily:
    """Distributions."""
    family = HistogramMetricFamily(name, meaning, labels=labels)
    for values, histogram in samples:
        buckets, below = [], 0
        for bound, count in zip((*map(str, histogram.bounds), "+Inf"), tuple(histogram.counts), strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(values, buckets, sum_value=histogram.total)
    return family


def states(labels: Labels, possible: Iterable[str], present: str) -> Iterator[tuple[Labels, float]]:
    """A sample for each possible state, 1 for the present one, so that a query never meets a gap."""
    for state in possible:
        yield (*labels, state), float(state == present)


def counted(counts: Mapping[str, int]) -> Samples:
    """Counts by one label, sorted."""
    return [((name,), number) for name, number in sorted(dict(counts).items())]


def grown(counts: Mapping[Key, int], always: Iterable[Key] = ()) -> Samples:
    """Counts by several labels, sorted; ``always`` are there from the start, so that their first rise is seen."""
    counts = dict(counts)
    absent = [(values, 0) for values in dict.fromkeys(always) if values not in counts]
    return sorted([*absent, *counts.items()])


def _filled(family: Family, samples: Samples) -> Family:
    for values, number in samples:
        family.add_metric(values, number)
    return family
