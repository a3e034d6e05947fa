"""The metrics of DRA (if a resource is offered that way): calls of the kubelet, outcomes of claims, and publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.claims.contracts import ClaimObserver
from driver.claims.model import ClaimState
from driver.door.registration import DraDoorObserver, RegistrationState
from driver.interfaces.observers import InterfaceObserver
from node.clocks import SYSTEM, Clocks
from node.ledger.events import HoldsObserver
from node.metrics import Counter, Gauge, Histogram, Metric, metrics_of, single
from node.rules import Door

if TYPE_CHECKING:
    from protos.agent.v1alpha1 import agent_pb2

PREPARATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)
"""Upper bounds in seconds: from three writes to the disk to the deadline that the kubelet sets."""
MOVES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 10.0)
"""Upper bounds in seconds: a runtime waits 2 s."""
_METHODS = ("NodePrepareResources", "NodeUnprepareResources")
_OUTCOMES = (("ok",), ("refused",), ("unavailable",))


class DraDoorMetrics(DraDoorObserver):
    """Calls of the kubelet, and the registration with it."""

    def __init__(self, clocks: Clocks = SYSTEM) -> None:
        self._clock = clocks.clock
        self.calls = Counter(
            "ostler_dra_calls",
            "Calls of the kubelet to the DRA driver that were answered, by gRPC status code.",
            ("method", "version", "code"),
        )
        self.latencies = Histogram(
            "ostler_dra_call_duration_seconds",
            "Time to answer such a call, whatever the number of its claims.",
            PREPARATIONS,
            ("method",),
        )
        self.claims = Counter(
            "ostler_dra_call_claims",
            "Claims in such calls: served, or failed with an error of their own.",
            ("method", "result"),
            [(method, result) for method in _METHODS for result in ("served", "failed")],
        )
        self.attempts = Counter(
            "ostler_dra_registration_attempts", "Times that the kubelet asked the DRA driver for its name and versions."
        )
        self.registrations = Counter(
            "ostler_dra_registrations", "Registrations of the DRA driver that the kubelet accepted."
        )
        self.failures = Counter(
            "ostler_dra_registration_failures",
            "Registrations of the DRA driver that failed: refused, not answered in time, or without a socket.",
        )
        self.registered_at = Gauge(
            "ostler_dra_registration_timestamp_seconds",
            "Unix time of the DRA driver's last registration; there is no series before the first.",
        )
        self.streams = single("ostler_dra_health_streams", "Streams of device health that the kubelet has open.", 0)

    def called(self, method: str, version: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended."""
        self.calls.add(method, version, code)
        self.latencies.observe(seconds, method)

    def answered(self, method: str, claims: int, failed: int) -> None:
        """That call was about that many claims."""
        self.claims.add(method, "served", by=claims - failed)
        self.claims.add(method, "failed", by=failed)

    def asked(self) -> None:
        """The kubelet asked who we are."""
        self.attempts.add()

    def registered(self) -> None:
        """The kubelet took our registration."""
        self.registrations.add()
        self.registered_at.set(self._clock())

    def failed(self) -> None:
        """Count a registration that failed."""
        self.failures.add()

    def watched(self, streams: int) -> None:
        """Note how many health streams are open."""
        self.streams.set(streams)


class ClaimMetrics(ClaimObserver):
    """Outcomes of claims. ``holds`` counts claims that lost a device to a pod, as it counts pods that lost one."""

    def __init__(self, holds: HoldsObserver) -> None:
        self._holds = holds
        self.preparations = Counter(
            "ostler_dra_claim_preparations",
            "Claims that were prepared (ok), refused (the claim is at fault) or put off (unavailable).",
            ("outcome",),
            _OUTCOMES,
        )
        self.preparing = Histogram(
            "ostler_dra_claim_preparation_duration_seconds",
            "Time to prepare a claim, whatever the outcome.",
            PREPARATIONS,
        )
        self.releases = Counter(
            "ostler_dra_claim_releases",
            "Claims that were released (ok), refused (the claim is at fault) or put off (unavailable).",
            ("outcome",),
            _OUTCOMES,
        )
        self.releasing = Histogram(
            "ostler_dra_claim_release_duration_seconds", "Time to release a claim, whatever the outcome.", PREPARATIONS
        )
        self.partitions = Counter("ostler_dra_partitions_made", "Partitions of GPUs that were made for claims.")
        self.removals = Counter(
            "ostler_dra_partitions_removed", "Partitions of GPUs that were removed after their claims."
        )
        self.partition_failures = Counter(
            "ostler_dra_partition_failures",
            "Attempts to make or remove a partition that failed (failed), or must wait for something (pending).",
            ("outcome",),
            (("failed",), ("pending",)),
        )
        self.making = Histogram(
            "ostler_dra_partition_duration_seconds", "Time that the driver took to make a partition.", PREPARATIONS
        )
        self.abandoned = Counter(
            "ostler_dra_abandoned_claims",
            "Claims that the API server no longer had, released without a call of the kubelet.",
        )
        self.metadata_failures = Counter(
            "ostler_dra_metadata_failures",
            "Times that the metadata files of a claim could not be written.",
        )
        self.damages = Counter(
            "ostler_dra_damaged_claim_records", "Claim records that could not be read and were rebuilt."
        )

    def prepared(self, outcome: str, seconds: float) -> None:
        """An attempt to prepare one claim ended."""
        self.preparations.add(outcome)
        self.preparing.observe(seconds)

    def unprepared(self, outcome: str, seconds: float) -> None:
        """An attempt to release one claim ended."""
        self.releases.add(outcome)
        self.releasing.observe(seconds)

    def partition_made(self, seconds: float) -> None:
        """A partition was made for a claim."""
        self.partitions.add()
        self.making.observe(seconds)

    def partitions_removed(self, count: int) -> None:
        """So many partitions of released claims were removed."""
        self.removals.add(by=count)

    def partition_failed(self, *, pending: bool) -> None:
        """A partition could not be made or removed."""
        self.partition_failures.add("pending" if pending else "failed")

    def collected(self, count: int) -> None:
        """Count claims that no pod uses any more and that were released."""
        self.abandoned.add(by=count)

    def damaged(self) -> None:
        """A record of a claim could not be read."""
        self.damages.add()

    def metadata_failed(self) -> None:
        """Metadata files of a claim could not be written."""
        self.metadata_failures.add()

    def lost(self) -> None:
        """A claim was allocated a device that a pod has through the plugin door."""
        self._holds.lost(Door.DRA)


class InterfaceMetrics(InterfaceObserver):
    """Interfaces of claims that move into pods and back."""

    def __init__(self) -> None:
        self.moves = Counter(
            "ostler_interfaces_moves",
            "Attempts to move the interfaces of a claim into its pod (to_pod) or back (to_node), by outcome.",
            ("direction", "outcome"),
            [(direction, outcome) for direction in ("to_pod", "to_node") for outcome in ("ok", "failed")],
        )
        self.moving = Histogram(
            "ostler_interfaces_move_duration_seconds",
            "Time to move all interfaces of a claim into its pod, whatever the outcome.",
            MOVES,
        )
        self.returning = Histogram(
            "ostler_interfaces_return_duration_seconds",
            "Time to take all interfaces of a claim back, whatever the outcome.",
            MOVES,
        )
        self.losses = Counter(
            "ostler_interfaces_lost", "Interfaces that did not come back when their pod's network namespace ended."
        )
        self.returns = Counter(
            "ostler_interfaces_found", "Lost interfaces that came back to the node later, and were restored."
        )

    def moved(self, outcome: str, seconds: float) -> None:
        """An attempt to move the interfaces of one claim into a pod ended."""
        self.moves.add("to_pod", outcome)
        self.moving.observe(seconds)

    def returned(self, outcome: str, seconds: float) -> None:
        """An attempt to take the interfaces of one claim back ended."""
        self.moves.add("to_node", outcome)
        self.returning.observe(seconds)

    def found(self) -> None:
        """A lost interface is back on the node, and restored."""
        self.returns.add()

    def lost(self, count: int) -> None:
        """So many interfaces did not come back."""
        self.losses.add(by=count)


class DraMetrics:
    """The counters of DRA: those of the door, of claims, and of their interfaces."""

    def __init__(self, holds: HoldsObserver, clocks: Clocks = SYSTEM) -> None:
        self.door = DraDoorMetrics(clocks)
        self.claims = ClaimMetrics(holds)
        self.interfaces = InterfaceMetrics()


@dataclass(frozen=True, slots=True)
class DraFigures:
    """The DRA door's metrics at a scrape. ``registration``: a value of ``driver.door.registration.RegistrationState``.

    ``interfaces``: by device, whether the interface in a pod has a problem. ``nri_failing``: interfaces should move
    into pods, but the container runtime does not report sandboxes.
    """

    metrics: DraMetrics
    registration: str
    slices: agent_pb2.ListSlicesResponse
    claims: agent_pb2.ListClaimsResponse
    interfaces: Mapping[str, bool]
    nri_failing: bool

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        yield from metrics_of(self.metrics.door)
        yield from metrics_of(self.metrics.claims)
        yield from metrics_of(self.metrics.interfaces)
        yield Gauge(
            "ostler_interfaces_out",
            "Network interfaces of this node that are in pods (in_pod), or neither there nor back (failing).",
            ("state",),
            [
                (("in_pod",), sum(not failing for failing in self.interfaces.values())),
                (("failing",), sum(self.interfaces.values())),
            ],
        )
        yield single(
            "ostler_interfaces_runtime_failing",
            "1 while interfaces should move into pods, but the container runtime does not report pod sandboxes (NRI).",
            self.nri_failing,
        )
        yield from _published(self.slices)
        yield Gauge(
            "ostler_dra_registration_state",
            "1 for the state: waiting (no kubelet), offered, registered, failed, leaving (a successor takes over).",
            ("state",),
            [((state.value,), state.value == self.registration) for state in RegistrationState],
        )
        yield Gauge(
            "ostler_dra_claims",
            "Claims that hold devices of this node (prepared, started, void since a reboot), and those refused lately.",
            ("state",),
            [((state.value,), sum(claim.state == state for claim in self.claims.claims)) for state in ClaimState],
        )


def _published(view: agent_pb2.ListSlicesResponse) -> Iterator[Metric]:
    from ostler.admin.dra import PoolDeviceState, devices_in  # Loaded by whoever made the view.

    yield Gauge(
        "ostler_dra_devices",
        "Devices of the DRA door, by their state at the API server compared with the wanted one.",
        ("state",),
        [((state.value,), devices_in(view, state)) for state in PoolDeviceState],
    )
    yield single(
        "ostler_dra_tainted_devices",
        "Devices in ResourceSlices that carry a taint of ours.",
        sum(bool(device.taints) for pool in view.pools for device in pool.devices),
    )
    yield single("ostler_dra_slices", "ResourceSlices of this node.", sum(pool.slices for pool in view.pools))
    yield single(
        "ostler_dra_slices_in_order",
        "1 while the API server has what it should have, facts and order of devices included.",
        all(pool.in_order for pool in view.pools),
    )
    yield single(
        "ostler_dra_publishing_failing",
        "1 while ResourceSlices cannot be read or written.",
        any(pool.problem for pool in view.pools),
    )
    writes = Counter("ostler_dra_slice_writes", "ResourceSlices written since the start.", ("operation",))
    for operation, times in (("create", view.created), ("update", view.updated), ("delete", view.deleted)):
        writes.add(operation, by=times)
    yield writes
