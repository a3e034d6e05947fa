"""The state of a resource's registration, the registrar's memory, socket names, and how it backs off."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from node.clocks import Clocks
from node.sockets import MAX_PATH, PREFIX, FileId
from node.values import Record, Value, record, value
from plugin.kubelet import RegistrationPath


class PluginRegistrationState(StrEnum):
    """The state of a resource's registration."""

    WAITING = "waiting"
    """There is no kubelet."""
    OFFERED = "offered"
    """The socket is served, and the kubelet has not opened a device stream yet."""
    REGISTERED = "registered"
    CONTESTED = "contested"
    """Another plugin has the resource; ostler waits until it is gone."""
    FAILED = "failed"


@value
class RegistrationBegun(Value):
    """The kubelet is called, or has asked: next it opens the device stream, and it may call Allocate at once."""

    resource: str


@value
class PluginRegistrationStatus(Value):
    """State, path, socket and one sentence of detail."""

    state: PluginRegistrationState = PluginRegistrationState.WAITING
    path: RegistrationPath = RegistrationPath.REGISTRY
    socket: Path | None = None
    detail: str = ""


@record
class RegistrarMemory(Record):
    """The registrar's memory between two checks; times are of the injected clock, 0 for never."""

    kubelet: FileId | None = None
    kubelet_since: float = 0.0
    served_at: float = 0.0
    asked_at: float = 0.0
    refusal: str = ""
    refused_at: float = 0.0
    streaming: bool = False
    stream_ended: float = 0.0
    registered_with: FileId | None = None
    accepted: bool = False
    registered_at: float = 0.0
    not_before: float = 0.0
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    unanswered: int = 0


def socket_name(resource: str, directory: Path) -> str:
    """A new socket name for ``resource``: readable if the path is short enough, else a hash."""
    return _name(resource, directory, os.urandom(4).hex())


def _name(resource: str, directory: Path, unique: str) -> str:
    plain = "".join(each if (each.isascii() and each.isalnum()) or each == "." else "-" for each in resource)
    readable = f"{PREFIX}{plain}-{unique}.sock"
    if len(str(directory / readable).encode()) <= MAX_PATH:
        return readable
    return f"{PREFIX}{hashlib.sha256(resource.encode()).hexdigest()[:12]}-{unique}.sock"


def staying_mark(socket: Path) -> Path:
    """The file that marks a socket: its successor removes the socket only when the kubelet has the successor's own.

    Its name is hidden, so that kubelets ignore it.
    """
    return socket.with_name(f".{socket.name}.stays")


class Predecessors:
    """The sockets that another process of ostler left in ``directory``; none before ``find``.

    A predecessor that hands over still answers on them, and leaves the removal of their names to its successor: at
    once, or, for a kubelet with a client per socket, when it has the successor's socket as well (``staying``).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths: tuple[Path, ...] = ()
        self._marked: frozenset[Path] = frozenset()

    def find(self) -> None:
        """Look for them; call it before this process has its own first socket, which would count as one."""
        # The last eight digits tell one serving from the next.
        self._paths = tuple(self._directory.glob(f"{PREFIX}*-????????.sock"))
        self._marked = frozenset(path for path in self._paths if staying_mark(path).exists())

    def of(self, resource: str) -> tuple[Path, ...]:
        """Those that serve a resource and are removed when its new socket comes."""
        return tuple(path for path in self._all(resource) if path not in self._marked)

    def staying(self, resource: str) -> tuple[Path, ...]:
        """Those that serve a resource until the kubelet has its new socket."""
        return tuple(path for path in self._all(resource) if path in self._marked)

    def _all(self, resource: str) -> Iterator[Path]:
        for path in self._paths:
            if path.name == _name(resource, self._directory, path.stem.rpartition("-")[2]):
                yield path


class RegistrationDelay:
    """Delays in seconds: ``first``, doubled each time up to ``limit``, each cut by up to a quarter at random."""

    def __init__(self, first: float, limit: float, clocks: Clocks) -> None:
        self._first = first
        self._limit = limit
        self._random = clocks.random
        self._next = first

    def delay(self) -> float:
        """The next delay."""
        delay = self._next
        self._next = min(self._next * 2, self._limit)
        return delay * (1 - self._random() / 4)

    def reset(self) -> None:
        """Start over after a success."""
        self._next = self._first
