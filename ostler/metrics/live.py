"""Events of hardware: where they come from, and whether any were lost."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from node.inventory.live.hardware import LiveHardware
from node.inventory.live.reach import EventState
from ostler.metrics.shapes import counter, gauges, states


def live(hardware: LiveHardware) -> Iterator[Metric]:
    """All of them; a recorded node has none."""
    yield gauges(
        "ostler_uevent_source",
        "1 for where uevents come from: udev, kernel, or polling where none do.",
        ("source",),
        states((), [state.value for state in EventState], hardware.state.value),
    )
    counts = hardware.counts
    yield counter("ostler_uevents", "Uevents received.", counts.uevents)
    yield counter(
        "ostler_uevent_overflows",
        "Times that the kernel dropped uevents; each causes a full scan.",
        counts.uevent_overflows,
    )
    yield counter("ostler_link_messages", "Notifications of rtnetlink received.", counts.link_messages)
    yield counter(
        "ostler_link_overflows", "Times that the kernel dropped notifications of rtnetlink.", counts.link_overflows
    )
    yield counter("ostler_polled_changes", "Changes found by polling what causes no event.", counts.polled_changes)
    yield counter("ostler_hardware_wakeups", "Scans asked for because hardware may have changed.", counts.wakeups)
