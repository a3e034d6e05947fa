"""From many hints to few wake-ups: waits until a burst pauses, never longer than a fixed time.

A NIC that is plugged in makes a dozen events within milliseconds (function, driver, interface, its new name); a scan in
the middle would publish half of them. The inventory's own least interval between scans comes on top.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET = 0.05
"""Seconds without a hint after which a burst is over."""
LONGEST = 0.25
"""Most seconds that a hint waits."""


class Wakeups:
    """Calls ``wake`` once for hints that come close together; belongs to the thread of the loop.

    Invariants: every hint is followed by a wake-up within ``longest`` seconds; a single hint by one after ``quiet``.
    """

    def __init__(self, wake: Callable[[], None], *, quiet: float = QUIET, longest: float = LONGEST) -> None:
        self._wake = wake
        self._quiet = quiet
        self._longest = longest
        self._first = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.count = 0

    def hint(self) -> None:
        """Something may have changed."""
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if self._timer is None:
            self._first = self._last
            self._timer = loop.call_later(self._quiet, self._due)

    def close(self) -> None:
        """Forget hints that are waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        loop = asyncio.get_running_loop()
        at = min(self._last + self._quiet, self._first + self._longest)
        # One timer for a burst, moved when it fires: a timer for each hint would cost more than the hint.
        if at > loop.time():
            self._timer = loop.call_at(at, self._due)
            return
        self._timer = None
        self.count += 1
        self._wake()
