"""Connections that can be cut from another thread: a blocked read ends at once, with whatever error that is."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref


class Sockets:
    """Those of one client or stream. Once cut, whatever is added is cut as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.closed = False

    def add(self, sock: socket.socket) -> None:
        """A connection that was made just now."""
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
