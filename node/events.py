"""What people must be told: events in Kubernetes' sense, handed to whoever can show them.

Parts of the agent say what happened to an ``EventSink``; what the sink does with it (log, status, the API server) is
not their business.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

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


class EventSink(Protocol):
    """Takes events; must not block and must not raise."""

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        """Tell that something happened."""
        ...
