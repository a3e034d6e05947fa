"""The driver as the kubelet sees it: options, state of the registration, names of sockets, and counters.

Socket names are unique to each serving, and readable if the path's length allows it. Two instances of the driver may
run side by side during an update, and a kubelet from 1.37 on confuses instances that follow each other under one path.
So every serving has its own names, and a new instance removes the names that a killed predecessor left: a kubelet would
dial them for another half an hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from enum import StrEnum
from pathlib import Path

from node.sockets import MAX_PATH, FileId, is_answered, is_socket, remove_dead
from node.values import Value, value

PLUGIN_TYPE = "DRAPlugin"
CLAIM_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""Newest first: kubelets take the first one that they know. Named by Go package, as in the kubelet."""
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Kubelets up to 1.36 always call the second one; from 1.37 on they choose from this list."""


class RegistrationState(StrEnum):
    """The state of the driver's registration."""

    WAITING = "waiting"
    """Its sockets are served, and no kubelet has asked yet."""
    OFFERED = "offered"
    """The kubelet has asked and has not decided yet."""
    REGISTERED = "registered"
    FAILED = "failed"
    """The kubelet refused, or the sockets cannot be created where it looks."""
    LEAVING = "leaving"
    """A successor is about to take over and gets all calls."""


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
    own folder in it is created if missing. ``registry_dir``: the kubelet's ``plugins_registry``.
    ``plugins_dir_on_host``: ``plugins_dir`` as the kubelet sees it, if it is mounted elsewhere here; None: as here.
    ``patience``: seconds a kubelet gets to ask, and to give its verdict; it looks every second. ``health``: serve the
    health of devices, too.
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
        """The driver's own folder, for its claims socket."""
        return self.plugins_dir / self.driver_name

    @property
    def services(self) -> tuple[str, ...]:
        """The services that the driver announces to the kubelet."""
        return (*CLAIM_SERVICES, *HEALTH_SERVICES) if self.health else CLAIM_SERVICES

    def seen_by_kubelet(self, socket: Path) -> str:
        """The path of a socket in the driver's folder as the kubelet must dial it."""
        if self.plugins_dir_on_host is None:
            return str(socket)
        return str(self.plugins_dir_on_host / socket.relative_to(self.plugins_dir))


@value
class RegistrationChanged(Value):
    """The state of the registration, and with it the door's readiness, has changed."""


class DraDoorObserver:
    """Counts nothing itself; subclasses count. Every call must return at once and must not raise."""

    def called(self, method: str, version: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended: ``NodePrepareResources``, ``v1``, a gRPC status code's name."""

    def answered(self, method: str, claims: int, failed: int) -> None:
        """The call named ``claims`` claims; ``failed`` of them got an error."""

    def asked(self) -> None:
        """The kubelet asked for the driver's name and services."""

    def registered(self) -> None:
        """The kubelet accepted the registration."""

    def failed(self) -> None:
        """A registration failed: refused, not answered in time, or without a socket."""

    def watched(self, streams: int) -> None:
        """The number of open health streams changed."""


_UNIQUE = "[0-9a-f]{8}"


def unique() -> str:
    """A suffix that differs from one serving to the next."""
    return os.urandom(4).hex()


def claim_socket(serving: str) -> str:
    """The name of the claims socket in the driver's own folder."""
    return f"dra-{serving}.sock"


def registration_socket(options: DoorOptions, serving: str) -> str:
    """The socket's name in the kubelet's registry; a hash replaces a driver name that is too long."""
    readable = f"{options.driver_name}-{serving}-reg.sock"
    if len(os.fsencode(options.registry_dir / readable)) <= MAX_PATH:
        return readable
    return f"{_hashed(options.driver_name)}-{serving}-reg.sock"


def claim_sockets(folder: Path) -> tuple[Path, ...]:
    """Claims sockets of any instance of the driver in its folder, the oldest first."""
    return tuple(sorted(_sockets(folder, re.compile(f"dra-{_UNIQUE}\\.sock")), key=age))


def registration_sockets(options: DoorOptions) -> tuple[Path, ...]:
    """Registration sockets of any instance of the driver."""
    names = "|".join(re.escape(name) for name in (options.driver_name, _hashed(options.driver_name)))
    return tuple(_sockets(options.registry_dir, re.compile(f"(?:{names})-{_UNIQUE}-reg\\.sock")))


def age(path: Path) -> tuple[int, int]:
    """A sort key: when a socket was created; missing sockets come first."""
    identity = FileId.of(path)
    return (0, 0) if identity is None else (identity.modified_ns, identity.inode)


def sweep(options: DoorOptions) -> list[Path]:
    """Remove the driver's sockets that nobody answers; only for the holder of the instance lock."""
    dead = [path for path in (*claim_sockets(options.folder), *registration_sockets(options)) if not is_answered(path)]
    for path in dead:
        with contextlib.suppress(OSError):  # It stays: the kubelet dials it in vain, which harms nothing.
            path.unlink()
    return dead + remove_dead(options.folder)


def _hashed(driver_name: str) -> str:
    return f"dra-{hashlib.sha256(driver_name.encode()).hexdigest()[:12]}"


def _sockets(folder: Path, names: re.Pattern[str]) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []  # It is missing or unreadable; serving there reports that.
    return [path for path in found if names.fullmatch(path.name) and is_socket(path)]
