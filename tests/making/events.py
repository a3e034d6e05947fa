"""What the agent told people, kept."""

from __future__ import annotations

from typing import TypeVar

from node.events import EventBus, EventType

E = TypeVar("E")


def heard(bus: EventBus, kind: type[E]) -> list[E]:
    """The events of this type that are published from now on."""
    found: list[E] = []
    bus.subscribe(kind, found.append)
    return found


class RecordedEvents:
    """An event sink that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[EventType, str, str]] = []

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        self.events.append((kind, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    def of(self, reason: str) -> list[str]:
        """The messages with this reason."""
        return [message for _, told, message in self.events if told == reason]
