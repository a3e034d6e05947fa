"""Each resource's registration: where it stands, since when, and how often it had to be made."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from ostler.metrics.counters import Counters
from ostler.metrics.figures import Figures
from ostler.metrics.shapes import counted, counters, gauges, grown, states
from plugin.kubelet import RegistrationPath
from plugin.registration import RegistrationState


def registration(figures: Figures, counts: Counters) -> Iterator[Metric]:
    """All of it."""
    yield from _present(figures, counts)
    ways = [(each.name, each.registration.path.value) for each in figures.resources]
    by = ("resource", "path")
    yield counters(
        "ostler_registration_attempts",
        "Times that the kubelet was told of the resource: it asked (registry), or Register was called (register).",
        by,
        grown(counts.attempts, ways),
    )
    yield counters(
        "ostler_registrations",
        "Registrations after which the kubelet opened the device stream.",
        by,
        grown(counts.registrations, ways),
    )
    yield counters(
        "ostler_registration_failures",
        "Registrations that came to nothing: refused, not answered in time, or without a socket.",
        by,
        grown(counts.failures, ways),
    )
    yield counters(
        "ostler_registration_conflicts",
        "Times that another plugin was found that takes the resource.",
        ("resource",),
        counted({**{each.name: 0 for each in figures.resources}, **counts.conflicts}),
    )
    yield counters(
        "ostler_registration_losses",
        "Times that the kubelet had other devices than those shown, although its device stream was open.",
        ("resource",),
        counted({**{each.name: 0 for each in figures.resources}, **counts.losses}),
    )


def _present(figures: Figures, counts: Counters) -> Iterator[Metric]:
    possible = [state.value for state in RegistrationState]
    paths = [path.value for path in RegistrationPath]
    yield gauges(
        "ostler_registration_state",
        "1 for the state: waiting (no kubelet), offered, registered, contested (another plugin), failed.",
        ("resource", "state"),
        [
            sample
            for each in figures.resources
            for sample in states((each.name,), possible, each.registration.state.value)
        ],
    )
    yield gauges(
        "ostler_registration_path",
        "1 for the way to register: registry (the kubelet watches a folder) or register (a call).",
        ("resource", "path"),
        [sample for each in figures.resources for sample in states((each.name,), paths, each.registration.path.value)],
    )
    yield gauges(
        "ostler_registration_streams",
        "Device streams that the kubelet has open; 0 means that it knows nothing of the devices.",
        ("resource",),
        [((each.name,), each.streams) for each in figures.resources],
    )
    yield gauges(
        "ostler_registration_timestamp_seconds",
        "Unix time of the last registration; there is no series before the first.",
        ("resource",),
        [((each.name,), at) for each in figures.resources if (at := counts.registered_at.get(each.name))],
    )
