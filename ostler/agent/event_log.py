"""The agent's log of events for people: each is logged and counted, and ``ostler status`` shows the last hundred."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from node.clocks import Clocks
from node.events import Event, EventBus, EventRecorder, EventType
from node.metrics import Counter

log = logging.getLogger("ostler.events")

KEPT = 100


class EventLog:
    """An ``EventRecorder`` that keeps the last events, and publishes each as an ``Event`` on ``bus``."""

    def __init__(self, clocks: Clocks) -> None:
        self._clock = clocks.clock
        self._events: deque[Event] = deque(maxlen=KEPT)
        self.counts = Counter("ostler_events", "Events reported in log and status.", ("type", "reason"))
        self.bus = EventBus()

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Keep, count and log an event."""
        event = Event(self._clock(), kind, reason, message)
        self._events.append(event)
        self.counts.add(kind.value, reason)
        log.log(
            logging.WARNING if kind is EventType.WARNING else logging.INFO,
            "event",
            extra={"type": kind.value, "reason": reason, "event": message},
        )
        self.bus.publish(event)

    def emit_once(self, kind: EventType, reason: str, message: str) -> None:
        """Emit an event, unless one of the last events has the same message."""
        if all(event.message != message for event in self._events):
            self.emit(kind, reason, message)

    @property
    def recent(self) -> tuple[Event, ...]:
        """The last events, newest last."""
        return tuple(self._events)


class EventsFromThreads:
    """An ``EventRecorder`` for other threads; emits to ``recorder`` on the loop."""

    def __init__(self, recorder: EventRecorder, loop: asyncio.AbstractEventLoop) -> None:
        self._recorder = recorder
        self._loop = loop

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Emit the event on the loop."""
        call_on(self._loop, lambda: self._recorder.emit(kind, reason, message))


def call_on(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call this on the loop, from another thread; does nothing once the loop is closed, because the process ends."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
