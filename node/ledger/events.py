"""What is published on the ledger's ``EventBus`` besides ``HoldsReleased``: news of holds, releases and the kubelet."""

from __future__ import annotations

from node.ledger.ledger import HeldError
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
