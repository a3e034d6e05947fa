"""What the readings of the kubelet tell about themselves: the edge to metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from node.rules import Door


class Outcome(StrEnum):
    """How a reading went."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """One of its sources could not be read; what that one said before still counts."""
    FAILED = "failed"


class HoldsObserver(Protocol):
    """Takes figures; every call must return at once and must not raise."""

    def read(self, outcome: Outcome, seconds: float) -> None:
        """The kubelet was looked at, which took so long."""
        ...

    def looked(self, processes: int) -> None:
        """A free device was looked at: so many left-over processes were on it."""
        ...

    def waited(self, *, given: bool) -> None:
        """An Allocate has waited for containers of a deleted pod, and was ``given`` the device or refused."""
        ...

    def lost(self, door: Door) -> None:
        """A pod or claim could not be given a device through ``door``, because the other door has given it out."""
        ...

    def evicted(self) -> None:
        """The taint of a contested device asks for the end of the pods that lost it."""
        ...


class Silent:
    """Observes nothing."""

    def read(self, outcome: Outcome, seconds: float) -> None:
        """Drop the figure."""

    def looked(self, processes: int) -> None:
        """Drop the figure."""

    def waited(self, *, given: bool) -> None:
        """Drop the figure."""

    def lost(self, door: Door) -> None:
        """Drop the figure."""

    def evicted(self) -> None:
        """Drop the figure."""
