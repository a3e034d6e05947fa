"""The inventory: devices with their health, what is not offered and why, the sources and the scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from node.health.state import HealthState
from node.inventory.model import SourceState
from ostler.metrics.counters import ScanCounters
from ostler.metrics.figures import Figures
from ostler.metrics.shapes import Samples, counted, counters, gauge, gauges, grown, histograms, states


def inventory(figures: Figures, scans: ScanCounters) -> Iterator[Metric]:
    """All of it."""
    yield from _devices(figures)
    yield from _sources(figures, scans)
    yield from _scans(figures, scans)


def _devices(figures: Figures) -> Iterator[Metric]:
    devices = figures.snapshot.devices
    resources = {item.device.name: offer.resource for offer in figures.offer.resources for item in offer.devices}
    counts = Counter(
        (device.kind.value, device.vendor, resources.get(device.name, ""), device.health.state.value)
        for device in devices
    )
    yield gauges(
        "ostler_devices",
        "Devices of the node; the resource is empty for one that is withheld.",
        ("kind", "vendor", "resource", "health"),
        grown(counts),
    )
    yield gauges(
        "ostler_device_fault_timestamp_seconds",
        "Unix time since which a device is not healthy; there is no series for a healthy one.",
        ("device", "kind", "resource", "health"),
        [
            (
                (device.name, device.kind.value, resources.get(device.name, ""), device.health.state.value),
                device.health.since,
            )
            for device in devices
            if device.health.state is not HealthState.HEALTHY
        ],
    )
    withheld = Counter((item.device.kind.value, item.cause.value) for item in figures.offer.withheld)
    yield gauges(
        "ostler_devices_withheld",
        "Devices that the kubelet is not shown, by the cause.",
        ("kind", "cause"),
        grown(withheld),
    )
    yield gauges(
        "ostler_driver_info",
        "Version of a vendor's driver, where the driver tells it; always 1.",
        ("vendor", "version"),
        _drivers(figures),
    )


def _drivers(figures: Figures) -> Samples:
    found = {(device.vendor, str(device.attribute("driverVersion") or "")) for device in figures.snapshot.devices}
    return [(labels, 1) for labels in sorted(found) if labels[1]]


def _sources(figures: Figures, scans: ScanCounters) -> Iterator[Metric]:
    possible = [state.value for state in SourceState]
    yield gauges(
        "ostler_source_state",
        "1 for the state of a source of devices: ok, waiting for what it reads from, or failed.",
        ("source", "state"),
        [
            sample
            for source in figures.snapshot.sources
            for sample in states((source.name,), possible, source.state.value)
        ],
    )
    yield counters("ostler_source_failures", "Scans in which a source failed.", ("source",), counted(scans.failures))


def _scans(figures: Figures, scans: ScanCounters) -> Iterator[Metric]:
    yield histograms("ostler_scan_duration_seconds", "Time to look at all hardware.", (), [((), scans.durations)])
    yield gauges(
        "ostler_last_scan_timestamp_seconds",
        "Unix time at which the last scan ended; there is no series before the first.",
        (),
        [((), scans.last)] if scans.last else [],
    )
    yield gauge("ostler_scan_interval_seconds", "Most seconds between two scans.", figures.scan_interval)
    yield gauge(
        "ostler_snapshot_generation",
        "Number of the newest snapshot; it grows with every change and begins anew with the process.",
        figures.snapshot.generation,
    )
    yield counters(
        "ostler_device_changes",
        "Devices that came or went after the first scan.",
        ("kind", "change"),
        grown(scans.changes, [(kind, change) for kind in _kinds(figures) for change in ("added", "removed")]),
    )
    yield counters(
        "ostler_health_transitions",
        "Devices that a scan found in another state of health than before; ostler_health_verdicts has what followed.",
        ("kind", "from", "to"),
        grown(scans.transitions, [(kind, *transition) for kind in _kinds(figures) for transition in _USUAL]),
    )


_USUAL = [
    (HealthState.HEALTHY.value, HealthState.UNHEALTHY.value),
    (HealthState.UNHEALTHY.value, HealthState.HEALTHY.value),
]
"""Transitions that are shown before the first one."""


def _kinds(figures: Figures) -> list[str]:
    return sorted({device.kind.value for device in figures.snapshot.devices})
