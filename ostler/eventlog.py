"""The agent's memory of what people must be told: logged, counted, and the last hundred kept for the command line."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from node.events import Event, EventType

log = logging.getLogger("ostler.events")

KEPT = 100


class EventLog:
    """An ``EventSink`` that keeps the last events."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=KEPT)
        self.counts: dict[tuple[str, str], int] = {}

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Keep, count and log an event."""
        self._events.append(Event(self._clock(), kind, reason, message))
        self.counts[kind.value, reason] = self.counts.get((kind.value, reason), 0) + 1
        log.log(
            logging.WARNING if kind is EventType.WARNING else logging.INFO,
            "event",
            extra={"type": kind.value, "reason": reason, "event": message},
        )

    @property
    def recent(self) -> tuple[Event, ...]:
        """The last events, newest last."""
        return tuple(self._events)
