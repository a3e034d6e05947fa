"""Common times for what is looked at every few seconds: a process that wakes less often costs less while it is idle.

A tick of an interval is a multiple of it on the clock that is handed in, so that everything with the same interval, or
with a multiple of it, wakes at once. Only for looks that nobody waits for: what an event begins does not wait for one.
"""

from __future__ import annotations

SELDOM = 9.5
"""Seconds between looks at all that has no event and may wait: what goes wrong there is known within ten."""


def until_tick(interval: float, now: float) -> float:
    """Seconds until the next tick of ``interval`` (seconds) at the time ``now``: more than 0, at most ``interval``.

    An interval of 0 has a tick at any time.
    """
    return interval - now % interval if interval else 0.0
