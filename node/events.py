"""Events of two kinds: Kubernetes' kind for people (``EventRecorder``), and typed ones between parts (``EventBus``).

``ostler/agent/event_log.py`` records the events for people, and ``ostler/agent/node_events.py`` posts them on the Node.
Parts say what happened; who shows an event, or acts on it, is not their business. A bus is the only way in which a part
calls another that it does not know: nobody assigns a callback to an attribute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from node.values import Value, value


class EventType(StrEnum):
    """Kubernetes' two event types."""

    NORMAL = "Normal"
    WARNING = "Warning"


@value
class Event(Value):
    """``reason`` in CamelCase for machines, ``message`` for people, ``time`` in Unix seconds."""

    time: float
    type: EventType
    reason: str
    message: str


class EventRecorder(Protocol):
    """Takes events for people; must not block and must not raise."""

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Report that something happened."""


E = TypeVar("E")


class EventBus:
    """Delivers events by their type, in the step that publishes them and in the order of subscription.

    A subscriber may publish in turn: that event is delivered before the publisher of the first one continues, so that
    no part acts on a state in which half of the consequences are missing. A subscriber must not block. What it raises
    reaches the publisher, or with ``log`` is logged there and keeps nobody else from the event. For one thread, usually
    that of the event loop.
    """

    def __init__(self, log: logging.Logger | None = None) -> None:
        self._log = log
        self._subscribers: dict[type, tuple[Callable[[Any], None], ...]] = {}

    def subscribe(self, kind: type[E], subscriber: Callable[[E], None]) -> None:
        """Call the handler with every event of exactly this type from now on."""
        self._subscribers[kind] = (*self._subscribers.get(kind, ()), subscriber)

    def publish(self, event: object) -> None:
        """Deliver the event to everybody who subscribed to its type."""
        for subscriber in self._subscribers.get(type(event), ()):
            try:
                subscriber(event)
            except Exception:  # A bug of one subscriber; the log tells, the others still hear.
                if self._log is None:
                    raise
                self._log.exception("a subscriber failed", extra={"published": type(event).__name__})
