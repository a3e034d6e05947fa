"""How long to wait before the next attempt: growing, bounded, and not the same on every node.

All agents of a cluster lose the API server at the same moment; without jitter they would come back at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Seconds: ``first`` doubles with every attempt up to ``most``; each wait is between half and all of that.

    A server's ``Retry-After`` is a lower bound, up to ``longest``.
    """

    first: float = 0.25
    most: float = 30.0
    longest: float = 120.0

    def delay(self, attempt: int, chance: float, retry_after: float | None = None) -> float:
        """Seconds to wait after the attempt of that number (from 0); ``chance`` is in [0, 1)."""
        # Bounded exponent: 2.0 ** 1024 overflows, and an outage may last for weeks.
        grown = min(self.first * 2.0 ** min(attempt, 64), self.most)
        wait = grown * (0.5 + chance / 2)
        if retry_after is None:
            return wait
        return min(max(retry_after, 0.0), self.longest) + wait


class Backoff:
    """Counts the attempts of one task until it succeeds; ``random`` returns numbers in [0, 1)."""

    def __init__(self, policy: BackoffPolicy, random: Callable[[], float]) -> None:
        self._policy = policy
        self._random = random
        self._attempt = 0

    def delay(self, retry_after: float | None = None) -> float:
        """Seconds to wait now; the next call returns more."""
        wait = self._policy.delay(self._attempt, self._random(), retry_after)
        self._attempt += 1
        return wait

    def reset(self) -> None:
        """Begin with short waits again, after a success."""
        self._attempt = 0
