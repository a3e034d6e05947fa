"""When pools are looked at: now, later, or later and later.

A name is in the queue once. While it waits for a time, an earlier time replaces that and a later one does not, so that
a stream of events cannot put off a pool for ever. A name that is added while somebody works on it comes again when that
is done. Failures are counted by name: one pool that fails makes no other wait.

Changes by others are put right after a delay that is just long enough to see all of them (``Repairs``). Somebody who
goes on changing slices, another controller of the same driver say, is answered more and more slowly, or the two would
write as fast as the API server lets them.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Protocol

from kube.backoff import BackoffPolicy
from node.clocks import SYSTEM, Clocks

RETRIES = BackoffPolicy(first=0.05, most=30.0)
"""Seconds; doubling, with jitter, by pool."""


class WorkQueue(Protocol):
    """What the controller needs of a queue; for several threads."""

    def add(self, name: str) -> None:
        """Look at it as soon as possible."""

    def add_after(self, name: str, seconds: float) -> None:
        """Look at it then, at the latest."""

    def add_failed(self, name: str, at_least: float = 0.0) -> float:
        """It failed once more: look at it after a time, in seconds, that grows with every failure.

        ``at_least``: what the server asks for, which is believed within reason.
        """

    def forget(self, name: str) -> None:
        """It worked: the next failure is the first again."""

    def get(self) -> str | None:
        """Wait for a name that is due, and take it; None at the end. Call ``done`` for it."""

    def done(self, name: str) -> None:
        """The work on it has ended."""

    def idle(self, within: float, timeout: float) -> bool:
        """Wait until nobody works and nothing comes due ``within`` as many seconds; whether that came true."""

    def shut_down(self) -> None:
        """End: ``get`` returns None at once."""


class PoolQueue:
    """The queue that is used unless another is given."""

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
        wait = max(self._policy.delay(failures, self._random()), min(at_least, self._policy.longest))
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
