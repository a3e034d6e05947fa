"""The events that ``node.ledger`` publishes besides ``HoldsReleased``, and the figures it reports."""

from __future__ import annotations

from enum import StrEnum

from node.ledger.holds import HeldError
from node.rules import Door
from node.values import Value, value


@value
class HoldsChanged(Value):
    """The holds, or how much of them is known, have changed: both doors must compute their offers again."""


@value
class OfferChanged(Value):
    """Claims hold, contest or name other devices than before, or rules act in another way: both doors must recompute
    their offers.

    Unlike ``HoldsChanged``, this frees no device that a claim waits for.
    """


@value
class ClaimRefused(Value):
    """The claim with this UID cannot have a device, because the plugin door has allocated it."""

    uid: str
    error: HeldError


@value
class ReleasesPending(Value):
    """Devices may wait for a process check or for containers to end: the checks should run now."""


@value
class ReleasesAdvanced(Value):
    """A check for processes or containers has changed what devices wait for."""


class ReadingOutcome(StrEnum):
    """How a reading went."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """One of its sources could not be read; its last content still counts."""
    FAILED = "failed"


class HoldsObserver:
    """Drops every figure; a subclass keeps them. Every call must return at once and must not raise."""

    def read(self, outcome: ReadingOutcome, seconds: float) -> None:
        """A reading of the kubelet took this many seconds."""

    def looked(self, processes: int) -> None:
        """A check of a free device found this many left-over processes."""

    def waited(self, *, given: bool) -> None:
        """An Allocate that waited for the containers of a deleted pod got the device (``given``) or was refused."""

    def lost(self, door: Door) -> None:
        """A pod or claim did not get a device through ``door``, because the other door has allocated it."""

    def evicted(self) -> None:
        """The taint of a contested device asks Kubernetes to evict the pods that lost it."""
