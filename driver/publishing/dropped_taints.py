"""Whether a taint withdraws a device from new claims, while the API server changes under us.

A server without the gate for taints drops them without a word. The agent asks once by a dry run, but a server can be
upgraded or set back while it runs, and the servers of one cluster one after the other. So what comes back of slices
counts, too: a taint that was dropped ends the trust in all of them at once, and whoever asks the server is told. Where
the answer is that it keeps taints (another server's, perhaps) they are tried again after a while, ever more rarely, and
so is what was dropped: nobody else would see that it is kept by now, since a slice is written only when something in it
is another. Once taints were kept for long, the next loss is a first one again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

AGAIN, RAREST = 60.0, 3600.0
"""Seconds after which taints are tried again, the first time and at most; kept for the latter, it is the first time."""


class DroppedTaints:
    """Written by one thread, but for ``answered``; ``doubted`` is told, in it, when the server drops a taint."""

    def __init__(self, monotonic: Callable[[], float], doubted: Callable[[], None]) -> None:
        self._monotonic = monotonic
        self._doubted = doubted
        self._keeps: bool | None = None
        self._dropped = False
        self._distrusted = False
        self._tried = 0.0
        self._wait = AGAIN

    @property
    def withdraw(self) -> bool:
        """Whether a taint keeps new claims away from a device, as far as is known."""
        return not self._distrusted and self._keeps is not False

    @property
    def unsure(self) -> bool:
        """Whether this has to be looked at again without news."""
        return (self._dropped or self._distrusted) and self._keeps is not False

    def answered(self, keeps: bool | None) -> None:
        """What the server said it does with taints; None: it has not said. From any thread."""
        if keeps is not self._keeps:
            # It is another one now: they are tried again at once.
            self._tried, self._wait = -math.inf, AGAIN
            self._keeps = keeps

    def seen(self, *, dropped: bool) -> None:
        """Whether what is published lacks a taint."""
        before, self._dropped = self._dropped, dropped
        if not before and not self._distrusted and self._tried + RAREST <= self._monotonic():
            self._wait = AGAIN
        if dropped and not before:
            self._distrusted, self._tried = True, self._monotonic()
            self._doubted()
        elif self._distrusted and not dropped and self._keeps and self._is_due():
            self._distrusted = False
            self._try()

    def sends_again(self) -> bool:
        """Whether it is time to try whether the server keeps by now what it dropped."""
        return self._dropped and self._keeps is not False and self._is_due()

    def sent_again(self) -> None:
        """It is sent again now."""
        self._dropped = False
        self._try()

    def _is_due(self) -> bool:
        return self._tried + self._wait <= self._monotonic()

    def _try(self) -> None:
        self._tried, self._wait = self._monotonic(), min(2 * self._wait, RAREST)
