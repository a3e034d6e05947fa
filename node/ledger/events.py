"""What the ledger's room publishes on its ``EventBus`` besides ``HoldsReleased``, and the figures it observes."""

from __future__ import annotations

from enum import StrEnum

from node.ledger.ledger import HeldError
from node.rules import Door
from node.values import Value, value


@value
class HoldsChanged(Value):
    """Who has what, or how much is known of it, has changed: both doors must compute their offers again."""


@value
class ClaimRefused(Value):
    """The claim with this UID cannot have a device, because the plugin door has given it out."""

    uid: str
    error: HeldError


@value
class ReleasesPending(Value):
    """Devices may wait for a process check or for containers to end: whoever looks should look now."""


@value
class ReleasesAdvanced(Value):
    """A process check or a look for containers has changed what devices wait for."""


@value
class AllocatableRead(Value):
    """The kubelet, asked at that time (monotonic), counted these as healthy: resource and id."""

    asked_at: float
    devices: frozenset[tuple[str, str]]


class ReadingOutcome(StrEnum):
    """How a reading went."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """One of its sources could not be read; what that one said before still counts."""
    FAILED = "failed"


class HoldsObserver:
    """Takes figures, and drops them; every call must return at once and must not raise."""

    def read(self, outcome: ReadingOutcome, seconds: float) -> None:
        """The kubelet was looked at, which took so long."""

    def looked(self, processes: int) -> None:
        """A free device was looked at: so many left-over processes were on it."""

    def waited(self, *, given: bool) -> None:
        """An Allocate has waited for containers of a deleted pod, and was ``given`` the device or refused."""

    def lost(self, door: Door) -> None:
        """A pod or claim could not be given a device through ``door``, because the other door has given it out."""

    def evicted(self) -> None:
        """The taint of a contested device asks for the end of the pods that lost it."""
