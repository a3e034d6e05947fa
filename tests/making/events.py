"""What the agent told people, kept."""

from __future__ import annotations

from node.events import EventType


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
