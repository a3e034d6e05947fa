"""The second door: what is published, what the kubelet asks, how claims fare. Absent where nothing is offered there."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from driver.door.registration import RegistrationState
from ostler.admin.dra import ClaimState, DeviceState, SlicesView
from ostler.metrics.dra_counters import DraCounters
from ostler.metrics.figures import DraFigures
from ostler.metrics.shapes import counter, counters, gauge, gauges, grown, histograms, states

_METHODS = ("NodePrepareResources", "NodeUnprepareResources")
_OUTCOMES = ("ok", "refused", "unavailable")


def dra(figures: DraFigures) -> Iterator[Metric]:
    """All of it."""
    yield from _published(figures.slices)
    yield from _registration(figures)
    yield from _calls(figures.counters)
    yield from _claims(figures)


def _published(view: SlicesView) -> Iterator[Metric]:
    numbers = {state: sum(pool.count(state) for pool in view.pools) for state in DeviceState}
    yield gauges(
        "ostler_dra_devices",
        "Devices of the second door, by what the API server has of them beside what it should have.",
        ("state",),
        [((state.value,), number) for state, number in numbers.items()],
    )
    yield gauge(
        "ostler_dra_tainted_devices",
        "Devices in ResourceSlices that carry a taint of ours.",
        sum(bool(device.taints) for pool in view.pools for device in pool.devices),
    )
    yield gauge("ostler_dra_slices", "ResourceSlices of this node.", sum(pool.slices for pool in view.pools))
    yield gauge(
        "ostler_dra_slices_in_order",
        "1 while the API server has what it should have, facts and order of devices included.",
        all(pool.in_order for pool in view.pools),
    )
    yield gauge(
        "ostler_dra_publishing_failing",
        "1 while ResourceSlices cannot be read or written.",
        any(pool.problem for pool in view.pools),
    )
    yield counters(
        "ostler_dra_slice_writes",
        "ResourceSlices written since the start.",
        ("operation",),
        [(("create",), view.created), (("update",), view.updated), (("delete",), view.deleted)],
    )


def _registration(figures: DraFigures) -> Iterator[Metric]:
    counts = figures.counters
    yield gauges(
        "ostler_dra_registration_state",
        "1 for the state: waiting (no kubelet), offered, registered, failed, leaving (a successor takes over).",
        ("state",),
        states((), [state.value for state in RegistrationState], figures.registration),
    )
    yield gauges(
        "ostler_dra_registration_timestamp_seconds",
        "Unix time of the DRA driver's last registration; there is no series before the first.",
        (),
        [((), counts.registered_at)] if counts.registered_at else [],
    )
    yield counter(
        "ostler_dra_registration_attempts", "Times that the kubelet asked the DRA driver who it is.", counts.attempts
    )
    yield counter(
        "ostler_dra_registrations", "Registrations of the DRA driver that the kubelet took.", counts.registrations
    )
    yield counter(
        "ostler_dra_registration_failures",
        "Registrations of the DRA driver that came to nothing: refused, not answered in time, or without a socket.",
        counts.failures,
    )
    yield gauge("ostler_dra_health_streams", "Streams of device health that the kubelet has open.", counts.streams)


def _calls(counts: DraCounters) -> Iterator[Metric]:
    yield counters(
        "ostler_dra_calls",
        "Calls of the kubelet to the DRA driver that were answered, by gRPC status code.",
        ("method", "version", "code"),
        grown(counts.calls),
    )
    yield histograms(
        "ostler_dra_call_duration_seconds",
        "Time to answer such a call, whatever the number of its claims.",
        ("method",),
        sorted(dict(counts.latencies).items(), key=lambda item: item[0]),
    )
    yield counters(
        "ostler_dra_call_claims",
        "Claims in such calls: served, or failed with an error of their own.",
        ("method", "result"),
        grown(counts.claims, [(method, result) for method in _METHODS for result in ("served", "failed")]),
    )


def _claims(figures: DraFigures) -> Iterator[Metric]:
    counts = figures.counters
    yield gauges(
        "ostler_dra_claims",
        "Claims that hold devices of this node (prepared, started, void since a reboot), and those refused lately.",
        ("state",),
        [((state.value,), sum(claim.state is state for claim in figures.claims)) for state in ClaimState],
    )
    always = [(outcome,) for outcome in _OUTCOMES]
    for name, meaning, outcomes, times in (
        ("preparation", "prepared", counts.preparations, counts.preparing),
        ("release", "released", counts.releases, counts.releasing),
    ):
        yield counters(
            f"ostler_dra_claim_{name}s",
            f"Claims that were {meaning} (ok), refused (the claim is at fault) or put off (unavailable).",
            ("outcome",),
            grown({(outcome,): number for outcome, number in dict(outcomes).items()}, always),
        )
        yield histograms(
            f"ostler_dra_claim_{name}_duration_seconds", f"Time until a claim was {meaning}, or not.", (), [((), times)]
        )
    yield counter(
        "ostler_dra_abandoned_claims",
        "Claims that were gone at the API server and released without a call of the kubelet.",
        counts.abandoned,
    )
    yield counter(
        "ostler_dra_damaged_claim_records",
        "Records of claims that could not be read, and were made anew.",
        counts.damages,
    )
