"""What the kubelet is shown, what it asks, and what it gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from ostler.metrics.counters import Counters
from ostler.metrics.figures import Figures
from ostler.metrics.shapes import Labels, counted, counter, counters, gauge, gauges, grown, histograms

_RESULTS = {"OK": "granted", "INVALID_ARGUMENT": "refused"}
"""Result of an Allocate call by its status code; every other code is a fault of ours."""


def kubelet(figures: Figures, counts: Counters) -> Iterator[Metric]:
    """Lists, calls, allocations."""
    yield from _lists(figures, counts)
    yield from _allocations(figures, counts)
    yield counters(
        "ostler_kubelet_calls",
        "Calls of the kubelet that were answered, by gRPC status code.",
        ("resource", "method", "code"),
        grown(counts.calls),
    )
    yield histograms(
        "ostler_kubelet_call_duration_seconds",
        "Time to answer a call of the kubelet.",
        ("resource", "method"),
        sorted(dict(counts.latencies).items(), key=lambda item: item[0]),
    )
    yield counter("ostler_kubelet_restarts", "Times that another kubelet's socket was found.", counts.kubelet_restarts)
    yield gauge(
        "ostler_cdi_write_failed",
        "1 while CDI specs cannot be written and devices that need them are shown unhealthy.",
        bool(figures.cdi_fault),
    )


def _lists(figures: Figures, counts: Counters) -> Iterator[Metric]:
    yield gauges(
        "ostler_resource_devices",
        "Devices that the kubelet is shown, by what it is shown of them.",
        ("resource", "health"),
        [
            sample
            for each in figures.resources
            for sample in (
                ((each.name, "healthy"), each.healthy),
                ((each.name, "unhealthy"), each.devices - each.healthy),
            )
        ],
    )
    unhealthy = Counter(
        (offer.resource, item.cause.value)
        for offer in figures.offer.resources
        for item in offer.devices
        if item.cause is not None
    )
    yield gauges(
        "ostler_resource_unhealthy_devices",
        "Devices that the kubelet is shown unhealthy, by the cause.",
        ("resource", "cause"),
        grown(unhealthy),
    )
    yield gauges(
        "ostler_resource_list_rejected",
        "1 while the newest list is too large for the kubelet and an older one is shown.",
        ("resource",),
        [((each.name,), bool(each.problem)) for each in figures.resources],
    )
    yield counters("ostler_list_updates", "Device lists shown to the kubelet.", ("resource",), counted(counts.lists))


def _allocations(figures: Figures, counts: Counters) -> Iterator[Metric]:
    names = [each.name for each in figures.resources]
    results = (*_RESULTS.values(), "failed")
    yield counters(
        "ostler_allocations",
        "Allocate calls of the kubelet: granted, refused (the pod asked for what cannot be given), or failed.",
        ("resource", "result"),
        grown(_by_result(counts.calls), [(name, result) for name in names for result in results]),
    )
    yield counters(
        "ostler_allocated_devices",
        "Devices handed to containers; a device counts every time.",
        ("resource",),
        counted({**dict.fromkeys(names, 0), **counts.devices_given}),
    )


def _by_result(calls: Mapping[tuple[str, str, str], int]) -> dict[Labels, int]:
    found: dict[Labels, int] = {}
    for (resource, method, code), number in dict(calls).items():
        if method == "Allocate":
            labels = resource, _RESULTS.get(code, "failed")
            found[labels] = found.get(labels, 0) + number
    return found
