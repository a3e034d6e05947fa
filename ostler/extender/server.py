"""The extender's port: HTTP/1.1 with JSON, in threads, with a bound on everything that a client decides.

A scheduler keeps its connection and sends one request after the other; people use curl. Nobody else has a reason to
connect, but anybody may. So there is a limit on connections (a new one closes the oldest), on the size of headers and
body, on all large bodies together, and on the time from a request's first byte to its last. A TLS handshake takes place
in the connection's own thread. Whatever a client sends, the worst that happens is that its own connection ends.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from kube.bodies import Json
from ostler.admin.http import BoundedReader, BoundedServer, split_address
from ostler.extender.tls import TlsContexts, common_name
from ostler.extender.wire import ExtenderError, encoded

log = logging.getLogger("ostler.extender")

MOST_HEADERS = 16 << 10
"""Bytes of a request before its body."""
MOST_BODY = 64 << 20
"""Bytes of one body, and of all large ones that are held at once: 5,000 whole Nodes, which nodeCacheCapable: false
sends, have about half of that."""
_SMALL = 1 << 20
"""Bytes of a body that is always taken; 5,000 names have a fifth of that."""
REQUEST_TIME = 10.0
"""Seconds from a request's first byte to its last; the scheduler itself gives up after 5 by default."""
IDLE_TIME = 300.0
"""Seconds that a connection may wait for its next request."""
_WAITING = 128
"""Clients that may wait to be accepted, so that a flood of them does not make the scheduler's wait for seconds."""
_DRAINED, _DRAINING = 1 << 20, 1.0
"""Bytes and seconds of a refused request that are still read, so that the client gets the answer."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """``body`` is written as JSON, or as it is if it is ``bytes``."""

    status: int
    body: Json | bytes
    content_type: str = JSON
    location: str = ""


Answering = Callable[[str, str, bytes], HttpAnswer]
"""Answers a request: method, path without query, body."""


def is_local(address: str) -> bool:
    """Whether ``host:port`` is an address that only this machine reaches; raises ``AddressInvalid``."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ExtenderServer(BoundedServer):
    """Answers requests on ``listener``; speaks TLS if it is given ``tls``."""

    def __init__(self, listener: socket.socket, answer: Answering, tls: TlsContexts | None = None) -> None:
        listener.listen(_WAITING)
        super().__init__(listener, _RequestHandler, "extender")
        self.answer = answer
        self._tls = tls
        self._lock = threading.Lock()
        self._large = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a client; the TLS handshake is left to the connection's own thread."""
        connection, client = super().get_request()
        if self._tls is None:
            return connection, client
        try:
            context = self._tls.current()
            return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), client
        except OSError:
            connection.close()
            raise

    @contextlib.contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Hold a body of that many bytes; raises ``ExtenderError`` if there is no room beside the others."""
        held = size if size > _SMALL else 0
        with self._lock:
            if self._large + held > MOST_BODY:
                raise ExtenderError(
                    f"the request body has {size} bytes, and there is no room for it while others are answered; ask "
                    "again, and set nodeCacheCapable: true in the scheduler's configuration",
                    HTTPStatus.SERVICE_UNAVAILABLE,
                )
            self._large += held
        try:
            yield
        finally:
            with self._lock:
                self._large -= held

    def admit(self, request: Any) -> None:
        """Do the TLS handshake, if any; raises ``OSError`` if it fails or a client of this name may not ask."""
        if self._tls is None:
            return
        request.do_handshake()
        name = common_name(request)
        if self._tls.client_names and name not in self._tls.client_names:
            log.warning("a client is refused: its certificate has no name that may ask", extra={"client": name[:100]})
            raise ConnectionRefusedError


class _RequestHandler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of one connection in turn; the server gives the answers."""

    server: ExtenderServer
    server_version = "ostler"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_TIME
    disable_nagle_algorithm = True
    # Headers and body leave in one segment.
    wbufsize = -1

    def setup(self) -> None:
        self.request.settimeout(REQUEST_TIME)
        self.server.admit(self.request)
        super().setup()
        self._source = BoundedReader(self.connection)
        self.rfile = self._reader = io.BufferedReader(self._source)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def handle_one_request(self) -> None:
        self._source.allow(1, IDLE_TIME)
        try:
            if not self._reader.peek(1):
                self.close_connection = True
                return
            # A reader takes more than the headers at a time, up to its buffer.
            self._source.allow(MOST_HEADERS + io.DEFAULT_BUFFER_SIZE, REQUEST_TIME)
            self._serve()
        except (TimeoutError, ConnectionError, ssl.SSLError) as error:
            log.debug("a client was too slow or left", extra={"error": str(error)})
            self.close_connection = True

    def _serve(self) -> None:
        self.raw_requestline = self.rfile.readline(MOST_HEADERS)
        if not self.raw_requestline.endswith(b"\n") or not self.parse_request():
            # parse_request has answered a request line that is not HTTP.
            self.close_connection = True
            return
        self._send(self._made())
        if self.close_connection:
            self._drain()
        self.server.trust(self.request)

    def _made(self) -> HttpAnswer:
        if self._source.is_exhausted:
            self.close_connection = True
            error = ExtenderError(
                f"the request's headers have more than {MOST_HEADERS} bytes",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
            return HttpAnswer(error.code, error.text)
        try:
            size = self._size()
            # A body that is not read would be taken for the next request.
            keeps, self.close_connection = not self.close_connection, True
            with self.server.room_for(size):
                body = self._body(size)
                self.close_connection = not keeps
                return self.server.answer(self.command, self.path.partition("?")[0], body)
        except ExtenderError as error:
            return HttpAnswer(error.code, error.text)
        except (TimeoutError, ConnectionError, ssl.SSLError):
            raise
        except Exception:
            # The caller learns that it failed, and the log says why.
            log.exception("a request failed", extra={"path": self.path})
            failure = ExtenderError("the request failed; the extender's log says why", 500)
            return HttpAnswer(failure.code, failure.text)

    def _size(self) -> int:
        """The size of the body; raises ``ExtenderError``."""
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise ExtenderError(
                "Transfer-Encoding is not supported; send the body with Content-Length", HTTPStatus.LENGTH_REQUIRED
            )
        text = self.headers.get("Content-Length", "0").strip()
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            self.close_connection = True
            raise ExtenderError(f"Content-Length is {text[:40]!r}; it must be a number of bytes")
        size = int(text)
        if size > MOST_BODY:
            self.close_connection = True
            raise ExtenderError(
                f"the request body has {size} bytes; the limit is {MOST_BODY}; "
                "set nodeCacheCapable: true in the scheduler's configuration",
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        return size

    def _body(self, size: int) -> bytes:
        self._source.allow(size, REQUEST_TIME)
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("the client left before its request was complete")
        return body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # The base class calls this for a request that is not HTTP; its client gets JSON like every other.
        self.close_connection = True
        self.request_version = self.protocol_version
        error = ExtenderError(explain or message or "the request is not HTTP/1.1", code)
        self._send(HttpAnswer(error.code, error.text))
        self._drain()

    def _drain(self) -> None:
        """Read the rest of a refused request: closing before would break the connection under the answer."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self._source.allow(_DRAINED, _DRAINING)
            while self.rfile.read(io.DEFAULT_BUFFER_SIZE):
                pass

    def _send(self, made: HttpAnswer) -> None:
        body = made.body if isinstance(made.body, bytes) else encoded(made.body)
        self.send_response(made.status)
        self.send_header("Content-Type", made.content_type)
        self.send_header("Content-Length", str(len(body)))
        if made.location:
            self.send_header("Location", made.location)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name is http.server's
        log.debug("request", extra={"client": str(self.client_address), "line": format % arguments})
