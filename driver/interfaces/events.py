"""What others hear of the interfaces of claims: events on the bus, places for people, and counts."""

from __future__ import annotations

from driver.claims.model import ClaimReference
from node.interfaces.model import AttachedInterface
from node.values import Value, value


@value
class InterfacesMoved(Value):
    """An event: these interfaces of the claim are in its pod."""

    claim: ClaimReference
    interfaces: tuple[AttachedInterface, ...]


@value
class InterfacesReturned(Value):
    """An event: no interface of the claim is in a pod any more; those of these devices were."""

    claim: ClaimReference
    devices: tuple[str, ...]


@value
class InterfacePlace(Value):
    """Where the interface of a device is: ``pod`` as ``namespace/name``, ``interface`` its name there.

    ``problem``: why it is not there yet, or not back; empty if it is where it should be.
    """

    pod: str
    interface: str
    problem: str = ""


class InterfaceObserver:
    """Counts nothing itself; subclasses count. They must not block or raise. Outcomes are ``ok`` or ``failed``."""

    def moved(self, outcome: str, seconds: float) -> None:
        """An attempt to move the interfaces of one claim into a pod ended."""

    def returned(self, outcome: str, seconds: float) -> None:
        """An attempt to take the interfaces of one claim back ended."""

    def lost(self, count: int) -> None:
        """So many interfaces did not come back."""
