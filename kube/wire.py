"""Connections with an end: a time limit on a whole answer, and a cut from another thread that ends a blocked read at
once.

The transport limits only each wait. A server that sends a byte now and then, or ``100 Continue`` again and again, keeps
every wait short and its answer endless, even before the body has begun, when only the transport reads. So each wait
gets what is left of the whole time, and none begins after its end. A stream is meant to be endless: once its header has
arrived, only each silence is limited.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

Left = Callable[[], float]
"""Seconds that a read may last; raises ``TimeoutError`` if none may begin."""
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""The system notices a vanished peer after a minute of silence; about the numbers of Go's clients."""


class Sockets:
    """The connections of one client or stream. After a cut, every added connection is cut as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.closed = False

    def add(self, sock: socket.socket) -> None:
        """Add a new connection."""
        with self._lock:
            self._open.add(sock)
            if self.closed:
                _cut(sock)

    def cut(self) -> None:
        """Cut all of them; safe to repeat."""
        with self._lock:
            self.closed = True
            for sock in self._open:
                _cut(sock)


def _cut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not sock.shutdown: a TLS socket's forgets its session first, and its reader would go on with ciphertext.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def within(seconds: float, monotonic: Callable[[], float]) -> Callable[[], Left]:
    """For each answer: ``seconds`` from its request."""

    def begun() -> Left:
        ends = monotonic() + seconds
        return lambda: _positive(ends - monotonic())

    return begun


class Wire:
    """The time limits of one stream, and its cut from another thread.

    ``opening``: seconds until its header arrives; ``idle``: of silence afterwards; ``whole``: of all of it. It is cut
    together with the ``parent`` connections.
    """

    def __init__(
        self, opening: float, idle: float, whole: float | None, monotonic: Callable[[], float], parent: Sockets
    ) -> None:
        self.idle = idle
        self.whole = whole
        self._opening = opening
        self._monotonic = monotonic
        self._parent = parent
        self._own = Sockets()
        self._began: float | None = None
        self._flows = False

    def is_cut(self) -> bool:
        """Whether this stream was cut."""
        return self._own.closed

    def is_ended(self) -> bool:
        """Whether the whole client was closed."""
        return self._parent.closed

    def opened(self, sock: socket.socket) -> None:
        """Take a new connection."""
        self._began = self._monotonic()
        self._flows = False
        with contextlib.suppress(OSError, AttributeError):
            # Without such options a lost peer is noticed later: by the limit on silence.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._parent.add(sock)
        self._own.add(sock)

    def flows(self) -> None:
        """The header has arrived."""
        self._flows = True

    def cut(self) -> None:
        """End it, from any thread."""
        self._own.cut()

    def left(self) -> float:
        """See ``Left``."""
        lived = 0.0 if self._began is None else self._monotonic() - self._began
        if not self._flows:
            return _positive(self._opening - lived)
        return self.idle if self.whole is None else min(self.idle, _positive(self.whole - lived))


def _positive(left: float) -> float:
    if left <= 0:
        raise TimeoutError("the time for the whole answer is over")
    return left


def bound_answers(pool: Any, begun: Callable[[], Left], opened: Callable[[socket.socket], None]) -> None:
    """Bound every read of the ``urllib3.PoolManager`` by what ``begun`` returns for each answer.

    ``opened`` is called with every connection, with its encryption.
    """

    def bounded(kind: Any) -> Any:
        plain = kind.ConnectionCls

        def response(sock: Any, *arguments: Any, **options: Any) -> Any:
            return plain.response_class(_Bounded(sock, begun()), *arguments, **options)

        def connect(connection: Any) -> None:
            plain.connect(connection)
            opened(connection.sock)

        connection = type("BoundedConnection", (plain,), {"response_class": staticmethod(response), "connect": connect})
        return type("BoundedPool", (kind,), {"ConnectionCls": connection})

    pool.pool_classes_by_scheme = {scheme: bounded(kind) for scheme, kind in pool.pool_classes_by_scheme.items()}


class _Bounded:
    """The part of a socket that an answer needs: a file to read from."""

    def __init__(self, sock: Any, left: Left) -> None:
        self._sock = sock
        self._left = left

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file whose reads are bounded; it keeps the socket open as the socket's own would."""
        return io.BufferedReader(_Reader(self._sock.makefile(mode, buffering=0), self._sock, self._left))


class _Reader(io.RawIOBase):
    def __init__(self, raw: Any, sock: Any, left: Left) -> None:
        self._raw = raw
        self._sock = sock
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
