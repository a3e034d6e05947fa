"""The server's port and its connections: HTTP/1.1 requests of the standard library's parser, answered one by one.

The port is the server's for as long as it lives, also while it is down: a second socket is bound to it and never
listens, so that connections are refused and no other process can take the port before the server is up again.
"""

from __future__ import annotations

import json
import logging
import select
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Protocol

from sandbox.apiserver import protobuf
from sandbox.apiserver.answers import Reply
from sandbox.apiserver.kinds import Json
from sandbox.apiserver.refusals import StatusError, bad_request, not_allowed

log = logging.getLogger("ostler.sandbox.apiserver")

LARGEST: Final = 3 << 20
"""Bytes of a request's body, as the server's limit."""
_HOST: Final = "127.0.0.1"
_QUEUE: Final = 512
_PATIENCE: Final = 5.0
"""Seconds for a connection's thread to end once its socket is shut."""


class HangUp(Exception):
    """The connection ends here, without an answer."""


class RequestHandler(Protocol):
    """Answers the requests of a connection."""

    def exchange(self, connection: Connection, body: object) -> Reply:
        """Answer the request that the connection has read. Raises StatusError, HangUp."""


class Connection(BaseHTTPRequestHandler):
    """Serves until the client or the server ends it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    connection: socket.socket

    def __init__(self, connection: socket.socket, address: object, exchange: RequestHandler) -> None:
        self._exchange = exchange
        super().__init__(connection, address, None)  # type: ignore[arg-type]  # it needs no server of socketserver

    @property
    def content_type(self) -> str:
        """Of the request's body, without parameters."""
        return str(self.headers.get("Content-Type", "")).partition(";")[0].strip()

    @property
    def gone(self) -> bool:
        """Whether the client has closed the connection."""
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        return not self.connection.recv(1, socket.MSG_PEEK)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing: what was asked is in the server's log of requests."""

    def handle_one_request(self) -> None:
        """Answer one request; a connection that breaks is the client's affair."""
        try:
            super().handle_one_request()
        except (OSError, HangUp):
            self.close_connection = True

    def do_GET(self) -> None:
        """Answer."""
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the parser's names

    def _serve(self) -> None:
        try:
            answer = self._exchange.exchange(self, self._body())
        except StatusError as refusal:
            retry = () if refusal.retry_after is None else (("Retry-After", str(refusal.retry_after)),)
            answer = Reply(refusal.code, refusal.status(), headers=retry)
        except (OSError, HangUp):
            raise
        except Exception as error:  # goes to the client and into the log, as a server does
            log.exception("a request could not be answered")
            fault = StatusError(500, f"an error of the stand-in itself: {type(error).__name__}: {error}")
            answer = Reply(fault.code, fault.status())
        if answer.stream is None:
            self._whole(answer)
            return
        try:
            self._stream(answer.stream)
        except (OSError, HangUp):
            raise
        except Exception as error:  # the answer has begun: it can only end, and the log says why
            log.exception("a watch could not continue")
            raise HangUp from error

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an invalid request in the server's own form; called by the parser."""
        self.close_connection = True
        fault = not_allowed() if code == HTTPStatus.NOT_IMPLEMENTED else StatusError(code, message or explain or "")
        self._whole(Reply(fault.code, fault.status()))

    def _body(self) -> object:
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise StatusError(HTTPStatus.LENGTH_REQUIRED, "a body must come in one piece, with its Content-Length")
        written = self.headers.get("Content-Length") or "0"
        if not (written.isascii() and written.isdigit()):
            self.close_connection = True
            raise bad_request(f"Content-Length {written!r} is not a number")
        length = int(written)
        if length > LARGEST:
            self.close_connection = True
            self._discard(length)
            raise StatusError(413, f"Request entity too large: limit is {LARGEST}")
        data = self.rfile.read(length)
        if len(data) < length:
            raise HangUp  # the client is gone, and what it meant to ask is not known
        if not data:
            return None
        if self.content_type == protobuf.CONTENT_TYPE:
            return self._decoded(data)
        if self.content_type not in ("", "application/json") and not self.content_type.endswith("+json"):
            raise self._unreadable(self.content_type)
        try:
            return json.loads(data.decode(errors="replace"), parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body of the request is not JSON: {error}") from error

    def _decoded(self, data: bytes) -> object:
        try:
            return protobuf.decode(data)
        except protobuf.UnknownKindError as error:
            raise self._unreadable(f"{self.content_type} with {error}") from error
        except ValueError as error:
            raise bad_request(f"the body of the request is not an object in protobuf: {error}") from error

    def _unreadable(self, form: str) -> StatusError:
        log.warning(
            "the API server's stand-in cannot read what %s sent to %s as %s; have the client send application/json",
            self.headers.get("User-Agent", "a client").partition(" ")[0],
            self.path.partition("?")[0],
            form,
        )
        text = "the body of the request was in an unknown format - accepted media types include: application/json"
        return StatusError(415, text)

    def _discard(self, length: int) -> None:
        """Read a body that is too large, within bounds: a client that is still writing does not see the answer."""
        rest = min(length, 8 * LARGEST)
        while rest > 0 and (piece := self.rfile.read1(min(rest, 1 << 16))):
            rest -= len(piece)

    def _whole(self, answer: Reply) -> None:
        is_text = isinstance(answer.body, str)
        data = answer.body.encode() if isinstance(answer.body, str) else encoded(answer.body)
        self.send_response(answer.code)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if is_text else "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in answer.headers:
            self.send_header(name, value)
        self._send(data)

    def _stream(self, events: Iterable[Json | None]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self._send(b"")
        for event in events:
            if event is None:
                if self.gone:
                    raise HangUp
            else:
                line = encoded(event) + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, data: bytes) -> None:
        """Headers and body in one piece: two would cost the client a wait."""
        buffered: list[bytes] = self.__dict__.pop("_headers_buffer", [])
        self.wfile.write(b"".join(buffered) + b"\r\n" + data)


def _no_number(text: str) -> object:
    """NaN and infinities, which only Python reads."""
    raise ValueError(f"{text} is not a number")


def encoded(body: Any) -> bytes:
    """Return JSON as the server writes it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


class Listener:
    """Has `handler` answer the requests of each connection, in a thread of its own."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
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
            Connection(connection, address, self._handler)
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
