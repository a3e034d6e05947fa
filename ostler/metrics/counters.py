"""What the agent counts, in plain memory, until somebody scrapes it.

``Counters`` is the ``Observer`` of the plugin door; the inventory, the configuration and the loop count in records of
their own below it. prometheus-client is loaded only when metrics are served, after the kubelet has been registered
with: importing it takes a third of the time that the whole start has. Everything here is written by the loop's thread
and read by others, which copy a dictionary before they walk through it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from node.inventory.diff import Diff
from node.inventory.model import Snapshot, SourceState, SourceStatus
from node.sockets import FileId
from node.values import Record, record

Key = TypeVar("Key")

CALLS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""Upper bounds in seconds: answers come from memory, so anything above a few milliseconds is worth seeing."""
SCANS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a small recorded node to a driver that is about to hang."""
DELAYS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""From an idle machine to a loop that a probe calls dead."""


@record
class Histogram(Record):
    """Observations per bucket (upper ``bounds``, and a last bucket without one) and their total."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...]) -> Histogram:
        """An empty one."""
        return cls(bounds, [0] * (len(bounds) + 1))

    def add(self, seen: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, seen)] += 1
        self.total += seen


@record
class ScanCounters(Record):
    """Scans of the hardware and what they found.

    ``last``: Unix seconds at the end of the newest scan, 0 for none. ``failures`` by source; ``transitions`` by (kind,
    state before, state now); ``changes`` by (kind, ``added`` or ``removed``), without what the first scan found.
    """

    clock: Callable[[], float] = time.time
    durations: Histogram = field(default_factory=lambda: Histogram.of(SCANS))
    last: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    transitions: dict[tuple[str, str, str], int] = field(default_factory=dict)
    changes: dict[tuple[str, str], int] = field(default_factory=dict)

    def scanned(self, seconds: float, sources: tuple[SourceStatus, ...]) -> None:
        """A scan ended, whether it found anything new or not."""
        self.durations.add(seconds)
        self.last = self.clock()
        for source in sources:
            failed = source.state is SourceState.FAILED
            self.failures[source.name] = self.failures.get(source.name, 0) + failed

    def published(self, snapshot: Snapshot, found: Diff) -> None:
        """A snapshot was published."""
        if snapshot.generation <= 1:
            return
        for device in found.added:
            _count(self.changes, (device.kind.value, "added"))
        for device in found.removed:
            _count(self.changes, (device.kind.value, "removed"))
        for change in found.changed:
            old, new = change.old.health.state.value, change.new.health.state.value
            if old != new:
                _count(self.transitions, (change.new.kind.value, old, new))


@record
class ConfigCounters(Record):
    """Reads of the configuration after the start, and what the one in force says.

    ``loaded``: Unix seconds of the last successful read. ``notes``: how many by kind. ``pending``: settings that
    differ in the file and wait for a restart.
    """

    loaded: float
    successful: bool = True
    reloads: dict[str, int] = field(default_factory=lambda: {"success": 0, "failure": 0})
    notes: dict[str, int] = field(default_factory=dict)
    pending: int = 0

    def reloaded(self, now: float, pending: int) -> None:
        """A reload took effect; ``pending`` settings need a restart."""
        self.loaded, self.successful, self.pending = now, True, pending
        self.reloads["success"] += 1

    def failed(self) -> None:
        """A reload was refused and the old configuration is in force."""
        self.successful = False
        self.reloads["failure"] += 1


@record
class Pulse(Record):
    """Signs of life of the loop: Unix seconds of the newest one, and how late they come."""

    last: float
    delays: Histogram = field(default_factory=lambda: Histogram.of(DELAYS))


class Counters:
    """What the plugin door tells, and the other parts' counters; ``clock`` gives Unix seconds.

    ``calls`` by (resource, method, code), ``latencies`` by (resource, method), ``attempts``, ``registrations`` and
    ``failures`` by (resource, path); the rest by resource. ``registered_at`` is in Unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._kubelet: FileId | None = None
        self.scans = ScanCounters(clock)
        self.config = ConfigCounters(clock())
        self.pulse = Pulse(clock())
        self.calls: dict[tuple[str, str, str], int] = {}
        self.latencies: dict[tuple[str, str], Histogram] = {}
        self.devices_given: dict[str, int] = {}
        self.lists: dict[str, int] = {}
        self.attempts: dict[tuple[str, str], int] = {}
        self.registrations: dict[tuple[str, str], int] = {}
        self.failures: dict[tuple[str, str], int] = {}
        self.conflicts: dict[str, int] = {}
        self.losses: dict[str, int] = {}
        self.registered_at: dict[str, float] = {}
        self.kubelet_restarts = 0

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended."""
        self.calls[resource, method, code] = self.calls.get((resource, method, code), 0) + 1
        latency = self.latencies.get((resource, method))
        if latency is None:
            latency = self.latencies[resource, method] = Histogram.of(CALLS)
        latency.add(seconds)

    def given(self, resource: str, devices: int) -> None:
        """A container got devices."""
        self.devices_given[resource] = self.devices_given.get(resource, 0) + devices

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """A new device list is shown."""
        _count(self.lists, resource)

    def kubelet_seen(self, socket: FileId) -> None:
        """The kubelet's socket; every resource tells of the same one, and another one than before is a restart."""
        if self._kubelet is not None and socket != self._kubelet:
            self.kubelet_restarts += 1
        self._kubelet = socket

    def attempted(self, resource: str, path: str) -> None:
        """The kubelet was told of the resource."""
        _count(self.attempts, (resource, path))

    def registered(self, resource: str, path: str) -> None:
        """The kubelet opened a device stream."""
        _count(self.registrations, (resource, path))
        self.registered_at[resource] = self._clock()

    def failed(self, resource: str, path: str) -> None:
        """A registration came to nothing."""
        _count(self.failures, (resource, path))

    def contested(self, resource: str) -> None:
        """Another plugin was found."""
        _count(self.conflicts, resource)

    def lost(self, resource: str) -> None:
        """The kubelet had other devices."""
        _count(self.losses, resource)


def _count(counts: dict[Key, int], key: Key) -> None:
    counts[key] = counts.get(key, 0) + 1
