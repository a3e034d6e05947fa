"""What the door reports about itself while it works: the edge to metrics.

The door calls a ``PluginObserver`` and does not know Prometheus.
"""

from __future__ import annotations

from node.sockets import FileId


class PluginObserver:
    """Counts nothing itself; every call must return at once and must not raise. ``path``: a ``RegistrationPath``."""

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended with a gRPC status code name."""

    def granted(self, resource: str, devices: int) -> None:
        """A container got that many devices; called after the answer is on its way."""

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """A new device list is shown."""

    def kubelet_seen(self, socket: FileId) -> None:
        """The kubelet has this socket; every resource reports it whenever it changes."""

    def attempted(self, resource: str, path: str) -> None:
        """The resource was announced to the kubelet by this path: the kubelet asked, or Register was called."""

    def registered(self, resource: str, path: str) -> None:
        """The kubelet opened a device stream after a registration by this path."""

    def failed(self, resource: str, path: str) -> None:
        """A registration by this path failed: refused, not answered in time, or without a socket."""

    def contested(self, resource: str) -> None:
        """Another plugin was found that takes the resource."""

    def lost(self, resource: str) -> None:
        """The kubelet had other devices than those shown, although the device stream was open."""
