"""Reports of the claims' interfaces: places for people, links to follow, and counts."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from node.values import Value, value


class PodLinks(Protocol):
    """Follows the links of interfaces in pods (``ostler.agent.health_watch.HealthWatch``)."""

    def watch(self, device: str, netns: Path) -> None:
        """The device's interface is in this namespace."""

    def forget(self, device: str) -> None:
        """It is back, or lost."""


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

    def found(self) -> None:
        """A lost interface is back on the node, and restored."""
