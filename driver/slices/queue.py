"""When pools are worked on: now, later, or at growing intervals.

A name is in the queue once. While it waits for a time, an earlier time replaces that and a later one does not, so that
a stream of events cannot postpone a pool for ever. A name that is added while somebody works on it comes again when
that work is done. Failures are counted by name: one failing pool delays no other.

Changes by others are repaired after a delay that is just long enough to gather all of them (``Repairs``). If somebody
changes slices again and again, such as another controller of the same driver, the repairs become slower and slower;
otherwise the two would write as fast as the API server lets them.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Protocol

from kube.backoff import BackoffPolicy
from node.clocks import SYSTEM, Clocks

RETRIES = BackoffPolicy(first=0.05, most=30.0)
"""Seconds; doubled after each failure of a pool, with jitter."""


class WorkQueue(Protocol):
    """What the controller needs of a queue; for several threads."""

    def add(self, name: str) -> None:
        """Make it due as soon as possible."""

    def add_after(self, name: str, seconds: float) -> None:
        """Make it due at that time at the latest."""

    def add_failed(self, name: str, at_least: float = 0.0) -> float:
        """Note a failure: make it due after seconds that grow with every failure.

        ``at_least``: the seconds that the server asks for, obeyed within reason.
        """

    def forget(self, name: str) -> None:
        """Forget its failures: the next failure counts as the first."""

    def get(self) -> str | None:
        """Wait for a name that is due and take it; None at the end. Call ``done`` for it afterwards."""

    def done(self, name: str) -> None:
        """End the work on it."""

    def idle(self, within: float, timeout: float) -> bool:
        """Wait until nobody works and nothing comes due ``within`` that many seconds; returns whether it is so."""

    def shut_down(self) -> None:
        """Shut down: ``get`` returns None at once."""


class PoolQueue:
    """The default queue."""

    def __init__(self, clocks: Clocks = SYSTEM, policy: BackoffPolicy = RETRIES) -> None:
        self._random = clocks.random
        self._policy = policy
        self._monotonic = clocks.monotonic
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._working: set[str] = set()
        self._failures: dict[str, int] = {}
        self._ended = False

    def add(self, name: str) -> None:
        """See ``WorkQueue``."""
        self.add_after(name, 0.0)

    def add_after(self, name: str, seconds: float) -> None:
        """See ``WorkQueue``."""
        with self._changed:
            due = self._monotonic() + max(seconds, 0.0)
            self._due[name] = min(due, self._due.get(name, due))
            self._changed.notify_all()

    def add_failed(self, name: str, at_least: float = 0.0) -> float:
        """See ``WorkQueue``."""
        with self._changed:
            failures = self._failures.get(name, 0)
            self._failures[name] = failures + 1
        # A server that asks many nodes for the same wait gets them back at different times.
        wait = self._policy.delay(failures, self._random(), at_least or None)
        self.add_after(name, wait)
        return wait

    def forget(self, name: str) -> None:
        """See ``WorkQueue``."""
        with self._changed:
            self._failures.pop(name, None)

    def get(self) -> str | None:
        """See ``WorkQueue``."""
        with self._changed:
            while not self._ended:
                ready = {name: due for name, due in self._due.items() if name not in self._working}
                name = min(ready, key=ready.__getitem__, default=None)
                wait = None if name is None else ready[name] - self._monotonic()
                if name is not None and wait is not None and wait <= 0:
                    del self._due[name]
                    self._working.add(name)
                    return name
                self._changed.wait(wait)
            return None

    def done(self, name: str) -> None:
        """See ``WorkQueue``."""
        with self._changed:
            self._working.discard(name)
            self._changed.notify_all()

    def idle(self, within: float, timeout: float) -> bool:
        """See ``WorkQueue``."""
        end = self._monotonic() + timeout
        with self._changed:
            while True:
                now = self._monotonic()
                near = [due for due in self._due.values() if due <= now + within]
                if not self._working and not near:
                    return True
                if now >= end:
                    return False
                self._changed.wait(end - now)

    def shut_down(self) -> None:
        """See ``WorkQueue``."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


_PATIENCE = 10
"""Repairs of one pool within ``_WINDOW`` seconds that are made at once; also bounds what is remembered of a pool."""
_WINDOW = 60.0
_LONGEST = 30.0
"""Seconds; upstream's delay for every repair."""
_MEMORY = 20


class Repairs:
    """Counts repairs by pool. Not thread-safe."""

    def __init__(self, delay: float, clocks: Clocks) -> None:
        self._delay = delay
        self._monotonic = clocks.monotonic
        self._made: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_MEMORY))

    def made(self, pool: str) -> None:
        """Note that a pool was written because others had changed it."""
        self._made[pool].append(self._monotonic())

    def delay(self, pool: str) -> float:
        """Seconds to wait before repairing a pool that others changed."""
        made = self._made.get(pool)
        if not made:
            return self._delay
        since = self._monotonic() - _WINDOW
        while made and made[0] <= since:
            made.popleft()
        beyond = len(made) - _PATIENCE
        return self._delay if beyond < 0 else min(max(self._delay, 0.1) * 2.0 ** (beyond + 1), _LONGEST)
