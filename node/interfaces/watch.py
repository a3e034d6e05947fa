"""The links of interfaces that are in pods: whether a cable was pulled while a pod uses it.

A netlink socket per namespace reports changes; nothing is polled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from node.values import Value, value


@value
class PodLink(Value):
    """The link of an interface in a pod: ``up`` administratively, and whether it has a carrier."""

    name: str
    up: bool
    carrier: bool


class PodLinkListener(Protocol):
    """Receives the links of interfaces in pods, on the loop."""

    def pod_link(self, device: str, link: PodLink | None) -> None:
        """The link of the device's interface changed; None: it is in no pod any more, or its namespace is gone."""


class PodLinkWatch:
    """Follows the link of each interface that is in a pod; call from the loop."""

    name = "pod-links"

    def __init__(self, listener: PodLinkListener) -> None:
        self._listener = listener

    def watch(self, device: str, netns: Path) -> None:
        """Follow the device's interface, found by its alias, in this namespace."""

    def forget(self, device: str) -> None:
        """Stop following; the interface is back."""
