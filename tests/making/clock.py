"""A clock that moves only when the test moves it."""

from __future__ import annotations


class ManualClock:
    """Seconds: set or add to ``now``; calling it returns them."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
