"""Signs of life of the event loop: for /livez, for systemd's watchdog, and for metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.clocks import SELDOM, until_tick
from ostler.agent.systemd import Notifier
from ostler.metrics.counters import LoopMetrics

STUCK = 30.0
"""Seconds without one after which the loop counts as hanging; a scan that takes longer hangs as well."""


class Heartbeat:
    """Beats while ``run`` runs. ``monotonic``: seconds; ``clock``: Unix seconds."""

    def __init__(
        self, notifier: Notifier, metrics: LoopMetrics, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._notifier = notifier
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._last = monotonic()

    def alive(self) -> bool:
        """Whether the loop was seen lately; for any thread."""
        return self._monotonic() - self._last < STUCK

    async def run(self) -> None:
        """Beat until cancelled; systemd is told that the end has begun while other parts are still ending."""
        interval = min(SELDOM, self._notifier.watchdog_interval or SELDOM)
        try:
            while True:
                self._last = self._monotonic()
                rest = until_tick(interval, self._last)
                self._metrics.heartbeat.set(self._clock())
                if self._notifier.watchdog_interval is not None:
                    self._notifier.send("WATCHDOG=1")
                await asyncio.sleep(rest)
                self._metrics.delays.observe(max(0.0, self._monotonic() - self._last - rest))
        finally:
            self._notifier.stopping()
