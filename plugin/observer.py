"""What the door tells about itself while it works: the edge to metrics.

The door calls an ``PluginObserver`` and does not know Prometheus; ``SilentPlugin`` is for uses without metrics.
"""

from __future__ import annotations

from typing import Protocol

from node.sockets import FileId


class PluginObserver(Protocol):
    """Takes figures; every call must return at once and must not raise. ``path`` is a ``RegistrationPath``."""

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended with a gRPC status code name."""
        ...

    def given(self, resource: str, devices: int) -> None:
        """A container got so many devices; told after the answer is on its way."""
        ...

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """A new device list is shown."""
        ...

    def kubelet_seen(self, socket: FileId) -> None:
        """The kubelet has this socket; every resource tells it whenever it is another one than before."""
        ...

    def attempted(self, resource: str, path: str) -> None:
        """The kubelet was told of the resource by this path: it asked, or Register was called."""
        ...

    def registered(self, resource: str, path: str) -> None:
        """The kubelet opened a device stream after a registration by this path."""
        ...

    def failed(self, resource: str, path: str) -> None:
        """A registration by this path came to nothing: refused, not answered in time, or without a socket."""
        ...

    def contested(self, resource: str) -> None:
        """Another plugin was found that takes the resource."""
        ...

    def lost(self, resource: str) -> None:
        """The kubelet had other devices than those shown, although the device stream was open."""
        ...


class SilentPlugin:
    """Observes nothing."""

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """Drop the figure."""

    def given(self, resource: str, devices: int) -> None:
        """Drop the figure."""

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """Drop the figure."""

    def kubelet_seen(self, socket: FileId) -> None:
        """Drop the figure."""

    def attempted(self, resource: str, path: str) -> None:
        """Drop the figure."""

    def registered(self, resource: str, path: str) -> None:
        """Drop the figure."""

    def failed(self, resource: str, path: str) -> None:
        """Drop the figure."""

    def contested(self, resource: str) -> None:
        """Drop the figure."""

    def lost(self, resource: str) -> None:
        """Drop the figure."""
