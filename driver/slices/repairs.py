"""How long to wait before putting right what others changed.

The first times: just long enough to see all of it. Somebody who goes on, another controller of the same driver say, is
answered more and more slowly, or the two would write as fast as the API server lets them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

_PATIENCE = 10
"""Repairs of one pool within ``_WINDOW`` seconds that are made at once; bounds what is remembered of a pool, too."""
_WINDOW = 60.0
_LONGEST = 30.0
"""Seconds, upstream's delay for every repair."""
_MEMORY = 20


class Repairs:
    """Counts repairs by pool. Not for several threads at a time."""

    def __init__(self, delay: float, monotonic: Callable[[], float]) -> None:
        self._delay = delay
        self._monotonic = monotonic
        self._made: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_MEMORY))

    def made(self, pool: str) -> None:
        """A pool was written because others had changed it."""
        self._made[pool].append(self._monotonic())

    def delay(self, pool: str) -> float:
        """Seconds to wait before looking at a pool that others changed."""
        made = self._made.get(pool)
        if not made:
            return self._delay
        since = self._monotonic() - _WINDOW
        while made and made[0] <= since:
            made.popleft()
        beyond = len(made) - _PATIENCE
        return self._delay if beyond < 0 else min(max(self._delay, 0.1) * 2.0 ** (beyond + 1), _LONGEST)
