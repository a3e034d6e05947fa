"""The health of devices: verdicts and how they change, what drivers report, and eviction limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from node.health.signal import Trouble
from node.health.state import Action, HealthState
from ostler.metrics.figures import HealthFigures
from ostler.metrics.shapes import counters, gauge, gauges, grown


def health(figures: HealthFigures) -> Iterator[Metric]:
    """All of it; there is none where this process does not serve the kubelet."""
    yield from _verdicts(figures)
    yield from _signals(figures)


def _verdicts(figures: HealthFigures) -> Iterator[Metric]:
    report = figures.report
    kinds = sorted({device.kind for device in report.devices})
    found = Counter((device.kind.value, device.health.state.value) for device in report.devices)
    yield gauges(
        "ostler_device_health",
        "Devices by the state that they are judged to be in; in a dry run they are shown as scans find them.",
        ("kind", "health"),
        [((kind.value, state.value), found[kind.value, state.value]) for kind in kinds for state in HealthState],
    )
    troubles = Counter(
        (device.kind.value, device.health.cause or Trouble.SCAN.value, device.health.state.value)
        for device in report.devices
        if device.health.state is not HealthState.HEALTHY
    )
    yield gauges(
        "ostler_device_trouble",
        "Devices that are not healthy, by the trouble that decides what ends it, and by state.",
        ("kind", "trouble", "health"),
        sorted(troubles.items()),
    )
    yield gauges(
        "ostler_health_flapping_devices",
        "Devices with a trouble that comes and goes, which is held until it has been quiet.",
        ("kind",),
        [((kind.value,), sum(each.flapping for each in report.devices if each.kind is kind)) for kind in kinds],
    )
    yield gauges(
        "ostler_health_evicting_devices",
        "Devices that cost the pods that have them, because of how they are.",
        ("kind",),
        [((kind.value,), sum(each.health.evicts for each in report.devices if each.kind is kind)) for kind in kinds],
    )
    on = {limit.kind for limit in report.eviction_limits}
    yield gauges(
        "ostler_health_brake",
        "1 while no device of a kind may evict, because more than half of them went bad at once.",
        ("kind",),
        [((kind.value,), float(kind in on)) for kind in kinds],
    )
    yield gauge("ostler_health_dry_run", "1 while verdicts on devices are shown to no pod.", float(report.dry_run))


def _signals(figures: HealthFigures) -> Iterator[Metric]:
    counts = figures.counters
    yield counters(
        "ostler_health_verdicts",
        "Times that a device came into a state, by the trouble that put it there; no trouble for getting well.",
        ("kind", "trouble", "health"),
        grown(counts.transitions),
    )
    yield counters(
        "ostler_health_events",
        "Events that told of a trouble, such as XIDs.",
        ("trouble",),
        grown(counts.events, [(Trouble.XID.value,), (Trouble.ECC.value,)]),
    )
    yield counters(
        "ostler_xids",
        "XIDs that NVIDIA's driver reported, by what is done about them; other for numbers that its catalog lacks.",
        ("xid", "action"),
        grown(counts.xids, [("other", Action.WARN.value)]),
    )
    yield counters(
        "ostler_health_looks",
        "Times that a source of signals told how devices are.",
        ("source",),
        grown(counts.looks),
    )
