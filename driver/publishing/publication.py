"""How publishing stands: the value that people see, which faults they are told, and whether taints can be trusted.

**Faults.** One event per outage, not one per attempt. A request that fails is tried again and most often works then, so
it is told only after ``PATIENCE``. Anything else (a slice that breaks a rule, a field that the API server dropped,
credentials that cannot be read) needs somebody to act, and is told at once.

**Taints.** A server without the gate for taints drops them without a word. The agent asks once by a dry run, but a
server can be upgraded or set back while it runs, and the servers of one cluster one after the other. So what comes back
of slices counts, too: a taint that was dropped ends the trust in all of them at once, and the server is asked again.
Where it answers that it keeps taints (another server's answer, perhaps) they are tried again after a while, ever more
rarely, and so is what was dropped: nobody else would notice that it is kept by now, since a slice is written only when
something in it changes. Once taints were kept for long, the next loss counts as a first one again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from kube.errors import RequestError
from node.events import EventSink, EventType

log = logging.getLogger("ostler.slices")

FAILED = "SlicesNotPublished"
WORKS_AGAIN = "SlicesPublished"
PATIENCE = 10.0
"""Seconds that requests may fail before anybody is told: a restart of the API server is shorter."""


class PublishingFaults:
    """Remembers the last fault and what was told of it; for any thread."""

    def __init__(self, events: EventSink, monotonic: Callable[[], float]) -> None:
        self._events = events
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told: set[str] = set()
        self.last = ""
        """The last fault in words, empty when all is well."""

    def tell(self, error: Exception, work: str) -> None:
        """A fault has arisen in this work; it will be tried again."""
        text = f"{work}: {error}"
        lasting = not isinstance(error, RequestError)
        with self._lock:
            self.last = text
            if self._since is None:
                self._since = self._monotonic()
            due = lasting and text not in self._told
            if due:
                self._told.add(text)
        log.info("slices", extra={"error": text})
        if due:
            self._events.emit(EventType.WARNING, FAILED, text)

    def wait(self, what: str) -> None:
        """Something has not come yet, which is a fault when it lasts."""
        with self._lock:
            self.last = what
            self._since = self._monotonic() if self._since is None else self._since

    def look(self, *, working: bool) -> None:
        """Tell of a fault that has lasted, or that all is well again where the opposite was told."""
        with self._lock:
            text, told = self.last, bool(self._told)
            if working:
                self.last, self._since = "", None
                self._told.clear()
            due = not working and not told and self._since is not None and self._since + PATIENCE <= self._monotonic()
            if due:
                self._told.add(text)
        if working and told:
            self._events.emit(EventType.NORMAL, WORKS_AGAIN, f"the devices are published as they are; before: {text}")
        elif due:
            self._events.emit(EventType.WARNING, FAILED, text)


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
