"""Which faults of publishing people are told, and when: one event per outage, not one per attempt.

A request that fails is tried again and most often works then, so it is told only after ``PATIENCE``. Anything else (a
slice that breaks a rule, a field that the API server dropped, credentials that cannot be read) needs somebody to act,
and is told at once.
"""

from __future__ import annotations

import logging
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
