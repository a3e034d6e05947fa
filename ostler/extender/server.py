"""The extender's port: HTTP/1.1 with JSON, in threads, with a bound on everything that a client decides.

A scheduler keeps its connection and asks one question after the other; people ask with curl. Nobody else has a reason
to connect, but anybody may. So there is a limit on connections (the oldest is closed for a new one), on the size of
headers and body, and on the time for a request from its first byte to its last. A TLS handshake takes place in the
connection's own thread. Whatever a client sends, the worst that happens is that its own connection ends.
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
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from kube.bodies import Json
from ostler.admin.http import BoundedServer, split_address
from ostler.extender.tls import TlsContexts, common_name
from ostler.extender.wire import ExtenderError, encoded

log = logging.getLogger("ostler.extender")

MOST_HEADERS = 16 << 10
"""Bytes of a request before its body."""
MOST_BODY = 64 << 20
"""Bytes of a body: 5,000 whole Nodes have about half of that where nodeCacheCapable is false."""
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


class _Server(BoundedServer):
    """Connections speak TLS if there are contexts; the handshake is the connection's own thread's."""

    def __init__(
        self, listener: socket.socket, handler: type[http.server.BaseHTTPRequestHandler], tls: TlsContexts | None
    ) -> None:
        super().__init__(listener, handler)
        self._tls = tls

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        if self._tls is None:
            return connection, client
        try:
            context = self._tls.current()
            return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), client
        except OSError:
            connection.close()
            raise


class ExtenderServer:
    """Answers requests on ``listener``, which it closes at the end; speaks TLS if it is given ``tls``."""

    def __init__(self, listener: socket.socket, answer: Answering, tls: TlsContexts | None = None) -> None:
        self._listener = listener
        listener.listen(_WAITING)
        self._server = _Server(listener, _handler(answer, tls), tls)
        self._thread = threading.Thread(target=self._server.serve_forever, name="extender", args=(5.0,), daemon=True)

    @property
    def port(self) -> int:
        """The port of the listener (useful if 0 was requested)."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering; requests under way are finished in their threads."""
        stopper = threading.Thread(target=self._server.shutdown, name="extender-stop", daemon=True)
        stopper.start()
        # The serving thread sleeps until somebody connects; closing its socket wakes it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        stopper.join(1.0)
        self._server.server_close()


class _Bounded(io.RawIOBase):
    """Reads from a client within the time and size that ``allow`` sets for each part of a request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end = 0.0
        self._left = 0

    def allow(self, size: int, seconds: float) -> None:
        """From now on ``size`` bytes may come within ``seconds``."""
        self._left, self._end = size, time.monotonic() + seconds

    @property
    def is_exhausted(self) -> bool:
        """Whether the client has sent all that it may, and perhaps more."""
        return self._left <= 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if self._left <= 0:
            return 0
        self._connection.settimeout(seconds)
        with memoryview(buffer) as view:
            count = self._connection.recv_into(view[: self._left])
        self._connection.settimeout(REQUEST_TIME)
        self._left -= count
        return count


def _handler(answer: Answering, tls: TlsContexts | None) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        server_version = "ostler"
        sys_version = ""
        protocol_version = "HTTP/1.1"
        timeout = REQUEST_TIME
        disable_nagle_algorithm = True
        # Headers and body leave in one segment.
        wbufsize = -1

        def setup(self) -> None:
            self.request.settimeout(REQUEST_TIME)
            if tls is not None:
                self.request.do_handshake()
                name = common_name(self.request)
                if tls.client_names and name not in tls.client_names:
                    log.warning("a client is refused: nobody of its name may ask", extra={"client": name[:100]})
                    raise ConnectionRefusedError
            super().setup()
            self._source = _Bounded(self.connection)
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
                # What is no HTTP has been answered by parse_request.
                self.close_connection = True
                return
            self._send(self._made())
            if self.close_connection:
                self._drain()
            assert isinstance(self.server, BoundedServer)
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
                body = self._body()
                return answer(self.command, self.path.partition("?")[0], body)
            except ExtenderError as error:
                return HttpAnswer(error.code, error.text)
            except (TimeoutError, ConnectionError, ssl.SSLError):
                raise
            except Exception:
                # The caller learns that it failed, and the log says why.
                log.exception("a request failed", extra={"path": self.path})
                failure = ExtenderError("the request failed; the extender's log says why", 500)
                return HttpAnswer(failure.code, failure.text)

        def _body(self) -> bytes:
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
            self._source.allow(size, REQUEST_TIME)
            body = self.rfile.read(size)
            if len(body) < size:
                raise ConnectionError("the client left within its request")
            return body

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            # Called for what is no HTTP; a client that asks so gets JSON like every other.
            self.close_connection = True
            self.request_version = self.protocol_version
            error = ExtenderError(explain or message or "the request is not HTTP/1.1", code)
            self._send(HttpAnswer(error.code, error.text))
            self._drain()

        def _drain(self) -> None:
            """Read the rest of what is not answered: closing before would break the connection under the answer."""
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

    return Handler
