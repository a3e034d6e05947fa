"""Serves HTTP within bounds, and the agent's read-only pages, on an address or a Unix socket.

Pages are served by a thread of their own, so that a hanging loop is reported as "not alive" and not by silence. They
read values that the loop replaces as a whole, so they need no lock. A server takes a listening socket: the caller
decides where to bind it, and what to do if that fails (see ``ostler.admin.probes``). A client can exhaust neither
threads nor memory: the number of connections, the size of a request and its time are bounded.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import io
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("ostler.http")

BACKLOG = 16
"""Clients that may wait to be accepted: a kubelet, a scraper, and people."""
REQUEST_TIMEOUT = 10.0
"""Seconds a client may take for its request; half-open connections end then."""
MOST_CLIENTS = 64
"""Connections at once; one more closes the oldest.

A probe is answered within milliseconds, so it is never the oldest, and clients that send nothing can use up neither
probes nor the files that the kubelet's sockets need.
"""
MOST_REQUEST = 16 << 10
"""Bytes of a request with all its headers; a kubelet's or a scraper's has a few hundred."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RECOVERY = 0.1
"""Seconds until the next client is accepted if the process or the machine has no file or memory left."""


@dataclass(frozen=True, slots=True)
class HttpPage:
    """An answer: status code, content type and body."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def text(cls, status: int, *lines: str) -> HttpPage:
        """Plain text."""
        return cls(status, "text/plain; charset=utf-8", "".join(f"{line}\n" for line in lines).encode())

    @classmethod
    def lines(cls, ok: bool, *lines: str) -> HttpPage:
        """Plain text, 200 if ``ok``, else 503."""
        return cls.text(200 if ok else 503, *lines)


Pages = Mapping[str, Callable[[], HttpPage]]
"""Functions by path; each renders its page for every request."""
Elsewhere = Callable[[str], HttpPage | None]
"""Another answer for a path that is not among our pages; None if there is none. May block its caller."""


class AddressInvalid(Exception):
    """The address is not ``host:port``."""


def split_address(address: str) -> tuple[str, int]:
    """``host`` and ``port`` of ``host:port`` or ``[host]:port``; an empty host means all addresses."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise AddressInvalid(f"{address!r} is not host:port, such as 0.0.0.0:9410")
    return host.strip("[]") or "0.0.0.0", int(port)


def listen(address: str) -> socket.socket:
    """Open a socket that listens at ``host:port``; raises ``OSError``, ``AddressInvalid``."""
    host, port = split_address(address)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A killed predecessor's connections must not keep us from its port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class BoundedServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves the clients of ``listener``, which it closes at the end, each connection in a thread of its own.

    There are at most ``MOST_CLIENTS`` connections. One more closes the oldest, but none that has proved its worth
    (``trust``) while there is another.
    """

    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: type[http.server.BaseHTTPRequestHandler], name: str) -> None:
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._clients: dict[socket.socket, bool] = {}
        self._changing = threading.Lock()
        self._name = name
        self._thread = threading.Thread(target=self.serve_forever, name=name, args=(5.0,), daemon=True)

    @property
    def port(self) -> int:
        """The port of the listener (useful if 0 was requested)."""
        return int(self.socket.getsockname()[1])

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving; requests under way are finished in their threads."""
        stopper = threading.Thread(target=self.shutdown, name=f"{self._name}-stop", daemon=True)
        stopper.start()
        # The serving thread sleeps until somebody connects or its poll ends; closing its socket wakes it.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        stopper.join(1.0)
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a client."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                # The waiting client stays in the queue, so retrying at once would be a busy loop.
                time.sleep(_RECOVERY)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread of its own."""
        oldest = None
        with self._changing:
            if len(self._clients) >= MOST_CLIENTS:
                oldest = next((each for each, trusted in self._clients.items() if not trusted), None)
                oldest = oldest or next(iter(self._clients))
                del self._clients[oldest]
            self._clients[request] = False
        if oldest is not None:
            with contextlib.suppress(OSError):
                # Its thread may have closed it by now.
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def trust(self, request: socket.socket) -> None:
        """Keep this connection while there is another to close: it belongs to a client that is known."""
        with self._changing:
            if request in self._clients:
                self._clients[request] = True

    def shutdown_request(self, request: Any) -> None:
        """Forget a client, and close its connection."""
        with self._changing:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may disconnect at any time, which is no fault."""
        expected = isinstance(sys.exc_info()[1], OSError)
        log.log(logging.DEBUG if expected else logging.ERROR, "request failed", exc_info=not expected)


class BoundedReader(io.RawIOBase):
    """Reads from a client within the size and time that ``allow`` sets for each part of a request.

    After the last allowed byte the stream is at its end; after the allowed time a read raises ``TimeoutError``. Writes
    keep the connection's own timeout.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._timeout = connection.gettimeout()
        self._end = 0.0
        self._left = 0

    def allow(self, size: int, seconds: float) -> None:
        """Allow the client to send ``size`` bytes within ``seconds`` from now."""
        self._left, self._end = size, time.monotonic() + seconds

    @property
    def is_exhausted(self) -> bool:
        """Whether the client has sent all that it may, and perhaps more."""
        return self._left <= 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, at least one byte, into ``buffer``; returns the number of bytes, 0 at the end."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if self._left <= 0:
            return 0
        self._connection.settimeout(seconds)
        with memoryview(buffer) as view:
            count = self._connection.recv_into(view[: self._left])
        self._connection.settimeout(self._timeout)
        self._left -= count
        return count


class HttpServer(BoundedServer):
    """Serves ``pages`` on ``listener``; calls ``elsewhere`` for every other path."""

    def __init__(self, listener: socket.socket, pages: Pages, elsewhere: Elsewhere | None = None) -> None:
        super().__init__(listener, _PageHandler, "http")
        self._pages = pages
        self._elsewhere = elsewhere

    def page(self, path: str) -> HttpPage:
        """The page at ``path``; if there is none, a page with status 404 that names the paths."""
        make = self._pages.get(path)
        page = make() if make is not None else self._elsewhere(path) if self._elsewhere is not None else None
        return page or HttpPage.text(404, f"no such page; the pages are {', '.join(sorted(self._pages))}")


class _PageHandler(http.server.BaseHTTPRequestHandler):
    """Answers one request for a page, and closes the connection."""

    server: HttpServer
    server_version = "ostler"
    sys_version = ""
    timeout = REQUEST_TIMEOUT

    def setup(self) -> None:
        super().setup()
        source = BoundedReader(self.connection)
        source.allow(MOST_REQUEST, REQUEST_TIMEOUT)
        self.rfile = io.BufferedReader(source)

    def do_GET(self) -> None:  # the name is http.server's
        path = self.path.partition("?")[0]
        try:
            page = self.server.page(path)
        except Exception:
            # The client learns that it failed, and the log says why: a closed connection would say nothing.
            log.exception("a page failed", extra={"path": path})
            page = HttpPage.text(500, "this page failed; the agent's log says why")
        self._answer(page)

    do_HEAD = do_GET  # noqa: N815  # the name is http.server's

    def _answer(self, page: HttpPage) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name is http.server's
        log.debug("request", extra={"client": str(self.client_address), "line": format % arguments})
