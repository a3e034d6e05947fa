"""What the door tells about itself while it works: the edge to metrics.

The door calls an ``Observer`` and does not know Prometheus; ``Silent`` is for uses without metrics.
"""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Takes figures; every call must return at once and must not raise."""

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended with a gRPC status code name."""
        ...

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """A new device list is shown."""
        ...

    def registered(self, resource: str, path: str) -> None:
        """The kubelet opened a device stream after a registration by this path."""
        ...


class Silent:
    """Observes nothing."""

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """Drop the figure."""

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """Drop the figure."""

    def registered(self, resource: str, path: str) -> None:
        """Drop the figure."""
