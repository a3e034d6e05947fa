"""The extender's metrics; ``docs/extender.md`` has their table.

Requests come in several threads, so a counter may lose one of two increments in the same moment; the counts of
decisions are made under the tracker's lock and are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from node.metrics import Counter, Gauge, Histogram, Metric, metrics_of
from ostler import __version__
from ostler.metrics.posting import PostingMetrics

REQUESTS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds in seconds; kube-scheduler gives up after 5 by default."""
ROUTINES = ("filter", "prioritize", "bind", "preempt", "inspect")
RESULTS = ("ok", "user_error", "platform_error")


class RequestMetrics:
    """Counts answered requests."""

    def __init__(self) -> None:
        self.durations = Histogram(
            "ostler_extender_request_duration_seconds", "Time to answer a request.", REQUESTS, ("routine",)
        )
        self.requests = Counter(
            "ostler_extender_requests",
            "Answered requests.",
            ("routine", "result"),
            [(routine, result) for routine in ROUTINES for result in RESULTS],
        )

    def answered(self, routine: str, result: str, seconds: float) -> None:
        """Count one request; ``result`` is one of ``RESULTS``."""
        self.requests.add(routine, result)
        self.durations.observe(seconds, routine)


class ExtenderMetrics:
    """Counts what the extender does: requests, events, and what becomes of pods, devices and the configuration."""

    def __init__(self) -> None:
        self.requests = RequestMetrics()
        self.events = PostingMetrics("ostler_extender")
        self.placed = Counter("ostler_extender_pods_placed", "Pods that got cells.")
        self.victims = Counter("ostler_extender_victims", "Victims named to the scheduler, each time they are named.")
        self.forced = Counter(
            "ostler_extender_force_binds",
            "Pods that the scheduler did not bind, by the outcome of binding them past it.",
            ("result",),
            [("bound",), ("refused",), ("failed",)],
        )
        self.unrecovered = Counter(
            "ostler_extender_pods_not_recovered",
            "Bound pods whose cells could not be entered; their devices count as free.",
        )
        self.moves = Counter(
            "ostler_extender_pods_moved",
            "Pods with other devices than their cells, by whether the cells could follow.",
            ("result",),
            [("moved",), ("refused",)],
        )
        self.written = Counter(
            "ostler_extender_records_written",
            "Records of bound pods that were written again, by result of each attempt.",
            ("result",),
            [("written",), ("failed",)],
        )
        self.device_changes = Counter(
            "ostler_extender_device_changes",
            "Devices that became bad, or healthy again, by what their node publishes.",
            ("health",),
            [("bad",), ("healthy",)],
        )
        self.drift = Gauge(
            "ostler_extender_drift",
            "Differences between the configuration and the GPUs that nodes publish.",
            (),
            [((), 0)],
        )
        self.faults = Counter("ostler_extender_faults", "Unexpected faults in what the API server reported.")
        self.reloads = Counter(
            "ostler_extender_reloads", "Changed configurations, by result.", ("result",), [("applied",), ("refused",)]
        )
        self.checks = Counter(
            "ostler_extender_admission_checks",
            "Answered AdmissionChecks of Kueue's Workloads, by answer.",
            ("answer",),
            [("ready",), ("retry",), ("rejected",)],
        )
        self.holds_lost = Counter(
            "ostler_extender_reservations_lost",
            "Reservations for Workloads that ended early: a stronger gang took the cells, or they became bad.",
        )


class ExtenderState(NamedTuple):
    """What the extender knows at a scrape.

    ``pods``: how many by state; ``bad``: how many nodes and devices of the configured cluster; ``holds``: how many
    Workloads hold cells.
    """

    pods: Mapping[str, int]
    bad: Mapping[str, int]
    holds: int
    is_active: bool


class ExtenderFigures:
    """All metrics for one scrape."""

    def __init__(self, metrics: ExtenderMetrics, state: ExtenderState) -> None:
        self._metrics = metrics
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        build = Gauge("ostler_extender_build_info", "The extender's version; the value is 1.", ("version",))
        build.set(1, __version__)
        yield build
        active = Gauge("ostler_extender_active", "1 if this replica acts, 0 if it is a standby.")
        active.set(int(self._state.is_active))
        yield active
        pods = Gauge("ostler_extender_pods", "Pods that want cells, by state.", ("state",))
        for state, count in self._state.pods.items():
            pods.set(count, state.lower())
        yield pods
        nodes = Gauge("ostler_extender_bad_nodes", "Configured nodes that are gone, not ready or cordoned.")
        nodes.set(self._state.bad["nodes"])
        yield nodes
        devices = Gauge("ostler_extender_bad_devices", "Configured devices that are bad by what their node publishes.")
        devices.set(self._state.bad["devices"])
        yield devices
        holds = Gauge("ostler_extender_reservations", "Workloads of Kueue that hold cells.")
        holds.set(self._state.holds)
        yield holds
        yield from metrics_of(self._metrics.requests)
        yield from metrics_of(self._metrics)
        yield from metrics_of(self._metrics.events)
