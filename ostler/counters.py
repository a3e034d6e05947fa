"""What the agent counts, in plain memory, until somebody scrapes it.

An ``Observer`` of the plugin door. prometheus-client is loaded only when metrics are served, after the kubelet has been
registered with: importing it takes a third of the time that the whole start has.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import field

from node.values import Record, record

BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""Upper bounds in seconds: answers come from memory, so anything above a few milliseconds is worth seeing."""


@record
class Latency(Record):
    """A histogram: calls per bucket (the last one without bound) and their total time in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one call."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


@record
class Counters(Record):
    """Calls by (resource, method, code), latencies by (resource, method), registrations by (resource, path)."""

    calls: dict[tuple[str, str, str], int] = field(default_factory=dict)
    latencies: dict[tuple[str, str], Latency] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    registrations: dict[tuple[str, str], int] = field(default_factory=dict)

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended."""
        self.calls[resource, method, code] = self.calls.get((resource, method, code), 0) + 1
        latency = self.latencies.get((resource, method))
        if latency is None:
            latency = self.latencies[resource, method] = Latency()
        latency.add(seconds)

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """A new device list is shown."""
        self.lists[resource] = self.lists.get(resource, 0) + 1

    def registered(self, resource: str, path: str) -> None:
        """The kubelet opened a device stream."""
        self.registrations[resource, path] = self.registrations.get((resource, path), 0) + 1
