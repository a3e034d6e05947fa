"""Where the driver's registration with the kubelet stands, and what it tells the kubelet of itself."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from node.values import Value, value

PLUGIN_TYPE = "DRAPlugin"
CLAIM_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""Newest first: kubelets take the first one that they know. Names by Go package, as the kubelet has them."""
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Kubelets up to 1.36 ask for the second one whatever is listed here; from 1.37 on they choose from this list."""


class RegistrationState(StrEnum):
    """Where the driver stands."""

    WAITING = "waiting"
    """Its sockets are there, and no kubelet has asked yet."""
    OFFERED = "offered"
    """The kubelet has asked who we are and has not said yet whether it takes us."""
    REGISTERED = "registered"
    FAILED = "failed"
    """The kubelet refused, or the sockets cannot be where they must be."""
    LEAVING = "leaving"
    """A successor is about to take over; calls are left to it."""


@value
class DoorStatus(Value):
    """State, the socket that claims are served on, how many health streams are open, and one sentence of detail."""

    state: RegistrationState = RegistrationState.WAITING
    socket: Path | None = None
    registration_socket: Path | None = None
    health_streams: int = 0
    detail: str = ""


@value
class DoorOptions(Value):
    """Where the kubelet looks for drivers, and who this one is.

    ``pool``: name of the pool of this node's devices. ``plugins_dir``: the kubelet's folder ``plugins``; the driver's
    own folder in it is made when missing. ``registry_dir``: the kubelet's ``plugins_registry``.
    ``plugins_dir_on_host``: ``plugins_dir`` as the kubelet sees it, where it is mounted elsewhere here; None: as here.
    ``patience``: seconds a kubelet gets to ask, and to say its verdict; it looks every second.
    ``health``: serve the health of devices, too.
    """

    driver_name: str
    pool: str
    plugins_dir: Path
    registry_dir: Path
    plugins_dir_on_host: Path | None = None
    patience: float = 10.0
    health: bool = True

    @property
    def folder(self) -> Path:
        """The driver's own folder, for the socket that claims are served on."""
        return self.plugins_dir / self.driver_name

    @property
    def services(self) -> tuple[str, ...]:
        """What the driver tells the kubelet that it serves."""
        return (*CLAIM_SERVICES, *HEALTH_SERVICES) if self.health else CLAIM_SERVICES

    def seen_by_kubelet(self, socket: Path) -> str:
        """The path of a socket in the driver's folder as the kubelet has to dial it."""
        if self.plugins_dir_on_host is None:
            return str(socket)
        return str(self.plugins_dir_on_host / socket.relative_to(self.plugins_dir))
