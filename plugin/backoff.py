"""Waiting longer after each failure, with jitter, so that many agents do not knock at once."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Delays in seconds: ``first``, doubled each time up to ``limit``, each cut by up to a quarter at random."""

    def __init__(self, first: float, limit: float, random: Callable[[], float]) -> None:
        self._first = first
        self._limit = limit
        self._random = random
        self._next = first

    def delay(self) -> float:
        """The next delay."""
        delay = self._next
        self._next = min(self._next * 2, self._limit)
        return delay * (1 - self._random() / 4)

    def reset(self) -> None:
        """Start over after a success."""
        self._next = self._first
