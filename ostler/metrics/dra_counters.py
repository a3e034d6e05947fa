"""What the second door counts, in plain memory, until somebody scrapes it.

``DraCounters`` observes the door (``driver.door.registration``) and the claims (``driver.claims.interfaces``).
Like the other counters it is written by the loop's thread and read by others, which copy a dictionary before they walk
through it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ostler.metrics.counters import Histogram

PREPARATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)
"""Upper bounds in seconds: from three writes to the disk to the deadline that the kubelet sets."""


class DraCounters:
    """``calls`` by (method, version, code), ``latencies`` by method, ``claims`` by (method, ``served`` or ``failed``).

    ``preparations`` and ``releases`` by outcome (``ok``, ``refused``, ``unavailable``).
    ``registered_at``: Unix seconds of the last registration, 0 for none. ``lost``: told when a claim could not be given
    a device that a pod has, which is counted with the holds.
    """

    def __init__(self, clock: Callable[[], float] = time.time, lost: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._lost = lost
        self.calls: dict[tuple[str, str, str], int] = {}
        self.latencies: dict[tuple[str], Histogram] = {}
        self.claims: dict[tuple[str, str], int] = {}
        self.attempts = 0
        self.registrations = 0
        self.failures = 0
        self.registered_at = 0.0
        self.streams = 0
        self.preparations: dict[str, int] = {}
        self.preparing = Histogram.of(PREPARATIONS)
        self.releases: dict[str, int] = {}
        self.releasing = Histogram.of(PREPARATIONS)
        self.abandoned = 0
        self.damages = 0

    def called(self, method: str, version: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended."""
        self.calls[method, version, code] = self.calls.get((method, version, code), 0) + 1
        latency = self.latencies.get((method,))
        if latency is None:
            latency = self.latencies[method,] = Histogram.of(PREPARATIONS)
        latency.add(seconds)

    def answered(self, method: str, claims: int, failed: int) -> None:
        """That call was about so many claims."""
        for result, number in (("served", claims - failed), ("failed", failed)):
            self.claims[method, result] = self.claims.get((method, result), 0) + number

    def asked(self) -> None:
        """The kubelet asked who we are."""
        self.attempts += 1

    def registered(self) -> None:
        """The kubelet took our registration."""
        self.registrations += 1
        self.registered_at = self._clock()

    def failed(self) -> None:
        """A registration came to nothing."""
        self.failures += 1

    def watched(self, streams: int) -> None:
        """So many health streams are open."""
        self.streams = streams

    def prepared(self, outcome: str, seconds: float) -> None:
        """One claim was prepared, or not."""
        self.preparations[outcome] = self.preparations.get(outcome, 0) + 1
        self.preparing.add(seconds)

    def unprepared(self, outcome: str, seconds: float) -> None:
        """One claim was released, or not."""
        self.releases[outcome] = self.releases.get(outcome, 0) + 1
        self.releasing.add(seconds)

    def collected(self, count: int) -> None:
        """Claims that nobody has any more were released."""
        self.abandoned += count

    def damaged(self) -> None:
        """A record of a claim could not be read."""
        self.damages += 1

    def lost(self) -> None:
        """A claim was allocated a device that a pod has through the plugin door."""
        self._lost()
