"""Who has what: holds by door, what is on its way, conflicts between the doors, and whether the kubelet tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from node.ledger.ledger import HoldState
from node.rules import Door
from ostler.metrics.figures import HoldsFigures
from ostler.metrics.holds_counters import PENDING
from ostler.metrics.shapes import counter, counters, gauge, gauges, histograms

NO_DOOR = "none"
_STATES = {
    Door.PLUGIN.value: (HoldState.ALLOCATED, HoldState.LISTED, HoldState.RECORDED, HoldState.DRAINING),
    Door.DRA.value: (HoldState.RESERVED, HoldState.PREPARED),
    NO_DOOR: (HoldState.DRAINING,),
}


def holds(figures: HoldsFigures) -> Iterator[Metric]:
    """All of it."""
    yield from _held(figures)
    yield from _conflicts(figures)
    yield from _readings(figures)


def _held(figures: HoldsFigures) -> Iterator[Metric]:
    found = Counter(
        (NO_DOOR if hold.door is None else hold.door.value, hold.state)
        for device in figures.report.devices
        for hold in device.holds
        if not hold.admin
    )
    yield gauges(
        "ostler_holds",
        "Holds of devices by door and by how they are known; draining: nobody's, but perhaps still in use.",
        ("door", "state"),
        [((door, state.value), found[door, state]) for door, states in _STATES.items() for state in states],
    )
    status = figures.report.status
    yield gauge(
        "ostler_moving_devices",
        "Devices that a rule moves to another door, where they are not given out yet.",
        status.moving,
    )
    yield gauges(
        "ostler_pending_release_devices",
        "Devices that nobody has by the books and that are not free yet, by what they wait for: "
        "containers of a deleted pod, processes that were left, or the first look for those.",
        ("cause",),
        [((cause,), figures.pending.get(cause, 0)) for cause in PENDING],
    )
    yield gauge(
        "ostler_containers_seen",
        "1 while it is seen whether containers of deleted pods still run; otherwise the kubelet's word is taken.",
        not status.containers,
    )
    yield gauge(
        "ostler_door_both_off",
        "1 while rules with door both act as plugin; the status says why.",
        bool(status.both),
    )


def _conflicts(figures: HoldsFigures) -> Iterator[Metric]:
    counts = figures.counters
    yield counters(
        "ostler_hold_conflicts",
        "Times that a door (the one that lost) could not give a device, because it or what overlaps it was held.",
        ("door",),
        [((door.value,), number) for door, number in dict(counts.conflicts).items()],
    )
    yield counters(
        "ostler_release_waits",
        "Times that an Allocate has waited for containers of a deleted pod, by whether the device was given then.",
        ("outcome",),
        [((outcome,), number) for outcome, number in dict(counts.waits).items()],
    )
    yield gauge(
        "ostler_hold_losers",
        "Claims of pods on this node that cannot get their device, because a pod has it through the plugin door.",
        figures.report.status.losers,
    )
    yield counter(
        "ostler_hold_evictions",
        "Times that a taint has asked for the end of pods whose claim had lost its device.",
        counts.evictions,
    )


def _readings(figures: HoldsFigures) -> Iterator[Metric]:
    counts = figures.counters
    yield counters(
        "ostler_hold_readings",
        "Times that the kubelet was asked which devices containers have: all was told (whole), a part, or nothing.",
        ("outcome",),
        [((outcome.value,), number) for outcome, number in dict(counts.readings).items()],
    )
    yield histograms(
        "ostler_hold_reading_duration_seconds", "Time that such a question took.", (), [((), counts.reading)]
    )
    yield gauges(
        "ostler_hold_reading_timestamp_seconds",
        "Unix time at which the kubelet last told all of it; there is no series before the first time.",
        (),
        [((), counts.read_at)] if counts.read_at else [],
    )
    yield gauge(
        "ostler_holds_known",
        "1 while it is known which devices containers have; otherwise none is offered to claims anew.",
        not figures.report.status.kubelet,
    )
    yield counters(
        "ostler_hold_looks",
        "Times that a free device was looked at: no process was left on it (clean), or one was.",
        ("result",),
        [((result,), number) for result, number in dict(counts.looks).items()],
    )
