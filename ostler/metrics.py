"""The agent's metrics in Prometheus' text format, made when they are asked for.

Loaded only where metrics are served. Names follow Prometheus' conventions: base units, ``_total`` for counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from node.inventory.live.hardware import LiveHardware
from node.inventory.live.reach import EventState
from node.inventory.model import SourceState
from ostler import __version__
from ostler.counters import BUCKETS, Counters
from ostler.figures import Figures
from plugin.door import ResourceStatus
from plugin.registration import RegistrationState

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
        figures = self._look()
        yield from _process(figures)
        yield from _inventory(figures)
        if figures.live is not None:
            yield from _live(figures.live)
        yield from _resources(figures.resources)
        yield from self._calls()
        yield from self._registrations(figures)

    def _calls(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(
            "ostler_calls", "Calls of the kubelet by gRPC status code.", labels=["resource", "method", "code"]
        )
        for labels, count in sorted(self._counters.calls.items()):
            calls.add_metric(labels, count)
        yield calls
        latencies = HistogramMetricFamily(
            "ostler_call_duration_seconds", "Time to answer a call of the kubelet.", labels=["resource", "method"]
        )
        for names, latency in sorted(self._counters.latencies.items()):
            buckets, below = [], 0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), latency.counts, strict=True):
                below += count
                buckets.append((bound, below))
            latencies.add_metric(names, buckets, sum_value=latency.total)
        yield latencies

    def _registrations(self, figures: Figures) -> Iterator[Metric]:
        registrations = CounterMetricFamily(
            "ostler_registrations", "Device streams the kubelet opened, by path.", labels=["resource", "path"]
        )
        for labels, count in sorted(self._counters.registrations.items()):
            registrations.add_metric(labels, count)
        yield registrations
        lists = CounterMetricFamily("ostler_lists", "Device lists shown to the kubelet.", labels=["resource"])
        for resource, count in sorted(self._counters.lists.items()):
            lists.add_metric([resource], count)
        yield lists
        events = CounterMetricFamily("ostler_events", "Events told to people.", labels=["type", "reason"])
        for labels, count in sorted(figures.events.items()):
            events.add_metric(labels, count)
        yield events


def _process(figures: Figures) -> Iterator[Metric]:
    info = GaugeMetricFamily("ostler_build_info", "Version of the agent; always 1.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    active = figures.role == "active"
    yield GaugeMetricFamily("ostler_active", "1 for the instance that serves, 0 for a standby.", value=active)
    yield GaugeMetricFamily("ostler_ready", "1 when every resource with devices is registered.", value=figures.ready)
    yield GaugeMetricFamily("ostler_quiesced", "1 while the driver is left alone.", value=figures.quiesced)


def _inventory(figures: Figures) -> Iterator[Metric]:
    snapshot = figures.snapshot
    devices = GaugeMetricFamily(
        "ostler_devices", "Devices of the node by their health.", labels=["kind", "vendor", "health"]
    )
    counts = Counter((device.kind.value, device.vendor, device.health.state.value) for device in snapshot.devices)
    for labels, count in sorted(counts.items()):
        devices.add_metric(labels, count)
    yield devices
    sources = GaugeMetricFamily("ostler_source_up", "1 for a source that answers.", labels=["source"])
    for source in snapshot.sources:
        sources.add_metric([source.name], source.state is SourceState.OK)
    yield sources
    yield GaugeMetricFamily("ostler_snapshot_generation", "Number of the snapshot.", value=snapshot.generation)
    yield CounterMetricFamily("ostler_scans", "Scans of the hardware.", value=figures.scans)
    yield GaugeMetricFamily(
        "ostler_last_scan_duration_seconds", "Time the last scan took.", value=figures.last_scan_seconds
    )


def _live(live: LiveHardware) -> Iterator[Metric]:
    counts = live.counts
    source = GaugeMetricFamily(
        "ostler_uevent_source",
        "1 for where uevents come from: udev, kernel, or polling where none do.",
        labels=["source"],
    )
    for state in EventState:
        source.add_metric([state.value], state is live.state)
    yield source
    for name, help_, value in (
        ("ostler_uevents", "Uevents received.", counts.uevents),
        (
            "ostler_uevent_overflows",
            "Times that the kernel dropped uevents; each causes a full scan.",
            counts.uevent_overflows,
        ),
        ("ostler_link_messages", "Notifications of rtnetlink received.", counts.link_messages),
        ("ostler_link_overflows", "Times that the kernel dropped notifications of rtnetlink.", counts.link_overflows),
        ("ostler_polled_changes", "Changes found by polling what causes no event.", counts.polled_changes),
        ("ostler_hardware_wakeups", "Scans asked for because hardware may have changed.", counts.wakeups),
    ):
        yield CounterMetricFamily(name, help_, value=value)


def _resources(resources: Iterable[ResourceStatus]) -> Iterator[Metric]:
    devices = GaugeMetricFamily(
        "ostler_resource_devices", "Devices shown to the kubelet.", labels=["resource", "health"]
    )
    registered = GaugeMetricFamily(
        "ostler_resource_registered", "1 while a device stream is open.", labels=["resource"]
    )
    contested = GaugeMetricFamily(
        "ostler_resource_contested", "1 while another plugin takes the resource.", labels=["resource"]
    )
    for resource in resources:
        devices.add_metric([resource.name, "Healthy"], resource.healthy)
        devices.add_metric([resource.name, "Unhealthy"], resource.devices - resource.healthy)
        registered.add_metric([resource.name], resource.streams > 0)
        contested.add_metric([resource.name], resource.registration.state is RegistrationState.CONTESTED)
    yield from (devices, registered, contested)
