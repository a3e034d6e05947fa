"""The agent's metrics in Prometheus' text format, made when they are asked for.

Loaded only where metrics are served. Names follow Prometheus' conventions: base units, ``_total`` for counters,
timestamps and not ages, a sample for every state of a state. Labels take values from fixed sets, from the rules
(resources), or from what is in the node (devices that are not healthy), never from requests. ``docs/metrics.md`` has
the table of them all, held against what an agent serves by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ostler.metrics.configuration import configuration
from ostler.metrics.counters import Counters
from ostler.metrics.figures import Figures
from ostler.metrics.health import health
from ostler.metrics.holds import holds
from ostler.metrics.inventory import inventory
from ostler.metrics.kubelet import kubelet
from ostler.metrics.live import live
from ostler.metrics.node_events import node_events
from ostler.metrics.process import process
from ostler.metrics.registration import registration

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """Renders ``counters`` and the figures that ``look`` returns."""

    def __init__(self, counters: Counters, look: Callable[[], Figures]) -> None:
        self._counters = counters
        self._look = look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Every family, as the registry asks for them."""
        figures, counters = self._look(), self._counters
        yield from process(figures, counters)
        if figures.node_events is not None:
            yield from node_events(figures.node_events)
        yield from configuration(counters.config)
        yield from inventory(figures, counters.scans)
        if figures.live is not None:
            yield from live(figures.live)
        yield from kubelet(figures, counters)
        yield from registration(figures, counters)
        if figures.holds is not None:
            yield from holds(figures.holds)
        if figures.health is not None:
            yield from health(figures.health)
        if figures.dra is not None:
            # Here and not above: most nodes have one door.
            from ostler.metrics.dra import dra

            yield from dra(figures.dra)
