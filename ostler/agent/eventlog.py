"""The agent's memory of what people must be told: logged, counted, and the last hundred kept for the command line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from node.events import Event, EventSink, EventType

log = logging.getLogger("ostler.events")

KEPT = 100


class EventLog:
    """An ``EventSink`` that keeps the last events."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=KEPT)
        self.counts: dict[tuple[str, str], int] = {}
        self._listeners: list[Callable[[Event], None]] = []

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Keep, count and log an event."""
        event = Event(self._clock(), kind, reason, message)
        self._events.append(event)
        self.counts[kind.value, reason] = self.counts.get((kind.value, reason), 0) + 1
        log.log(
            logging.WARNING if kind is EventType.WARNING else logging.INFO,
            "event",
            extra={"type": kind.value, "reason": reason, "event": message},
        )
        for listener in self._listeners:
            listener(event)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Hand every later event to ``listener`` as well; it must not block and must not raise."""
        self._listeners.append(listener)

    @property
    def recent(self) -> tuple[Event, ...]:
        """The last events, newest last."""
        return tuple(self._events)


class FromThreads:
    """An ``EventSink`` for other threads than the loop's, where ``sink`` is told."""

    def __init__(self, sink: EventSink, loop: asyncio.AbstractEventLoop) -> None:
        self._sink = sink
        self._loop = loop

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Have the loop tell it."""
        # A loop that is closed has nobody who could be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._sink.emit, kind, reason, message)
