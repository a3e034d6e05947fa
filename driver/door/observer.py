"""What the DRA door tells about itself while it works: the edge to metrics.

The door calls an ``Observer`` and does not know Prometheus; ``Silent`` is for uses without metrics. What is counted of
claims themselves is the claim service's (``driver.claims.observer``).
"""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Takes figures; every call must return at once and must not raise."""

    def called(self, method: str, version: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended: ``NodePrepareResources``, ``v1``, a gRPC status code's name."""
        ...

    def answered(self, method: str, claims: int, failed: int) -> None:
        """That call was about so many claims, and so many of them got an error."""
        ...

    def asked(self) -> None:
        """The kubelet asked who we are."""
        ...

    def registered(self) -> None:
        """The kubelet took our registration."""
        ...

    def failed(self) -> None:
        """A registration came to nothing: refused, not answered in time, or without a socket."""
        ...

    def watched(self, streams: int) -> None:
        """So many health streams are open now."""
        ...


class Silent:
    """Observes nothing."""

    def called(self, method: str, version: str, code: str, seconds: float) -> None:
        """Drop the figure."""

    def answered(self, method: str, claims: int, failed: int) -> None:
        """Drop the figure."""

    def asked(self) -> None:
        """Drop the figure."""

    def registered(self) -> None:
        """Drop the figure."""

    def failed(self) -> None:
        """Drop the figure."""

    def watched(self, streams: int) -> None:
        """Drop the figure."""
