"""The port: it is the server's for as long as it lives, also while nobody is listening.

A second socket is bound to the port and never listens, so that a server that is down refuses connections and nobody
else can take its place before it is up again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_HOST: Final = "127.0.0.1"
_QUEUE: Final = 512
_PATIENCE: Final = 5.0
"""Seconds for a connection's thread to end once its socket is shut."""


class Listener:
    """`serve` is called with each connection, in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket, object], object]) -> None:
        self._serve = serve
        self._holder = _bound(0)
        self.port: int = self._holder.getsockname()[1]
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._listening: socket.socket | None = None
        self._accepting: threading.Thread | None = None

    def up(self) -> None:
        """Listen."""
        if self._listening is None:
            self._listening = _bound(self.port)
            self._listening.listen(_QUEUE)
            self._accepting = threading.Thread(target=self._accept, args=(self._listening,), daemon=True)
            self._accepting.start()

    def down(self) -> None:
        """Refuse connections, and end those there are."""
        if self._listening is None or self._accepting is None:
            return
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join(_PATIENCE)
        self._listening.close()
        self._listening = self._accepting = None
        with self._lock:
            ending = list(self._open.items())
        for connection, _ in ending:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in ending:
            if thread is not threading.current_thread():  # a fault may take the server down
                thread.join(_PATIENCE)

    def close(self) -> None:
        """Give the port back."""
        self.down()
        self._holder.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._converse, args=(connection, address), daemon=True)
            with self._lock:
                self._open[connection] = thread
            thread.start()

    def _converse(self, connection: socket.socket, address: object) -> None:
        try:
            self._serve(connection, address)
        except OSError:
            pass  # broken by the client, who knows
        finally:
            with self._lock:
                del self._open[connection]
            connection.close()


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((_HOST, port))
    return bound
