"""The agent's metrics in Prometheus' text format, rendered on request.

The first scrape loads this module, because it imports Prometheus' library. Names follow Prometheus' conventions: base
units, ``_total`` for counters, timestamps instead of ages, one sample for every possible state. Labels take values from
fixed sets, from the rules (resources), or from the node's devices (those that are not healthy), never from requests.
``docs/metrics.md`` has the table of all metrics, which a test compares with what an agent serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from node.metrics import Counter, Gauge, Histogram, Known, Metric, metrics_of
from ostler.metrics import gauges
from ostler.metrics.counters import AgentMetrics
from ostler.metrics.gauges import Figures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition(Collector):
    """Renders the counters in ``metrics``, and the gauges of the figures that ``look`` returns."""

    def __init__(self, metrics: AgentMetrics, look: Callable[[], Figures]) -> None:
        self._metrics = metrics
        self._look = look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Every family, when the registry asks for them."""
        figures = self._look()
        for metric in self._all(figures):
            yield family(metric, figures.known)

    def _all(self, figures: Figures) -> Iterator[Metric]:
        metrics = self._metrics
        yield from gauges.process(figures)
        yield from metrics_of(metrics.loop)
        if figures.node_events is not None:
            yield from gauges.node_events(figures.node_events)
        yield from metrics_of(metrics.config)
        yield from gauges.inventory(figures)
        yield from metrics_of(metrics.scans)
        if figures.live is not None:
            yield from gauges.live(figures.live)
        yield from gauges.kubelet(figures)
        yield from gauges.registration(figures, metrics.plugin)
        yield from metrics_of(metrics.plugin)
        if figures.holds is not None:
            yield from gauges.holds(figures.holds)
            yield from metrics_of(metrics.holds)
        if figures.health is not None:
            yield from gauges.health(figures.health.report)
            yield from metrics_of(figures.health.metrics)
        if figures.mps is not None:
            yield from metrics_of(figures.mps)
        if figures.dra is not None:
            yield from figures.dra.collect()


def exposed(collect: Callable[[], Iterable[Metric]]) -> bytes:
    """The metrics that ``collect`` gives, with those of the process, for parts other than the agent."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Collected(collect))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Family]:
        for metric in self._collect():
            yield family(metric, {})


def family(metric: Metric, known: Known) -> Family:
    """A metric as Prometheus' library has it; ``known``: see ``node.metrics``."""
    if isinstance(metric, Histogram):
        return _histogram(metric)
    if isinstance(metric, Counter):
        made: CounterMetricFamily | GaugeMetricFamily = CounterMetricFamily(
            metric.name, metric.help, labels=metric.labels
        )
        samples = metric.samples(known)
    else:
        assert isinstance(metric, Gauge)
        made = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        samples = list(dict(metric.values).items())
    for labels, number in samples:
        made.add_metric(labels, number)
    return made


def _histogram(metric: Histogram) -> HistogramMetricFamily:
    made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, seen in sorted(dict(metric.series).items(), key=itemgetter(0)):
        buckets, below = [], 0
        for bound, count in zip((*map(str, metric.bounds), "+Inf"), tuple(seen.counts), strict=True):
            below += count
            buckets.append((bound, below))
        made.add_metric(labels, buckets, sum_value=seen.total)
    return made
