"""Time and randomness: the clocks that parts are given, common ticks for what wakes regularly, and jitter.

A process that wakes less often costs less while it is idle, so everything that looks regularly wakes at the same ticks:
multiples of its interval on the clock that it is given. Only looks that nobody waits for use them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, Protocol

from node.values import Value, value


class Clocks(Protocol):
    """The sources of time and randomness, which tests replace."""

    @property
    def clock(self) -> Callable[[], float]:
        """Unix seconds."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds since any moment; never goes back."""

    @property
    def random(self) -> Callable[[], float]:
        """Numbers in [0, 1)."""


def chance() -> float:
    """A number in [0, 1) for jitter, which keeps the nodes of a rollout from asking all at once.

    Not the module ``random``, which costs a millisecond at the start and 0.2 MB, and whose quality nobody needs.
    """
    return int.from_bytes(os.urandom(4), "big") / 2**32


@value
class SystemClocks(Value):
    """The ``Clocks`` of the machine, or some of them with replacements for the others."""

    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = chance


SYSTEM: Final = SystemClocks()


SELDOM = 9.5
"""Seconds between checks of everything that has no event and may wait: a fault there is known within ten."""


def until_tick(interval: float, now: float) -> float:
    """Seconds until the next tick of ``interval`` (seconds) at the time ``now``: more than 0, at most ``interval``.

    An interval of 0 has a tick at any time.
    """
    return interval - now % interval if interval else 0.0


AHEAD = 0.1
"""Seconds before a tick at which threads look, so that the event loop finds their results there at the tick.

What such a look finds as it was before need not wake the loop.
"""


def until_ahead(interval: float, now: float) -> float:
    """Seconds until ``AHEAD`` before a tick of ``interval``; as ``until_tick``."""
    return until_tick(interval, now + AHEAD)


def is_ahead(interval: float, now: float) -> bool:
    """Whether the next tick comes within ``AHEAD``."""
    return 0 < until_tick(interval, now) <= AHEAD
