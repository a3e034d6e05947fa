"""What is counted about claims."""

from __future__ import annotations

from typing import Protocol


class ClaimObserver(Protocol):
    """Counts; must not block and must not raise. Outcomes are ``ok``, ``refused`` or ``unavailable``."""

    def prepared(self, outcome: str, seconds: float) -> None:
        """One claim was prepared, or not."""
        ...

    def unprepared(self, outcome: str, seconds: float) -> None:
        """One claim was released, or not."""
        ...

    def collected(self, count: int) -> None:
        """So many claims that nobody has any more were released."""
        ...

    def damaged(self) -> None:
        """A record of a claim could not be read."""
        ...

    def lost(self) -> None:
        """A claim of a pod here was allocated a device that a pod has through the plugin door."""
        ...


class NoObserver:
    """Counts nothing."""

    def prepared(self, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def unprepared(self, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def collected(self, count: int) -> None:
        """Do nothing."""

    def damaged(self) -> None:
        """Do nothing."""

    def lost(self) -> None:
        """Do nothing."""
