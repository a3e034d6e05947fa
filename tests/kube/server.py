"""An API server of the standard library: it answers what a test tells it to, and keeps what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject
from tests.kube.authority import KeyPair

AT_ONCE = BackoffPolicy(first=0.001, most=0.002, longest=0.01)
"""Tries again without a wait worth the name."""


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: JsonObject
    certificate: str = ""
    port: int = 0
    """The client's: requests over one connection have the same."""


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    drip: bool = False
    """One byte at a time, until the server is closed."""
    hang_up: bool = False
    """Take the request and close without an answer."""
    wait: bool = False
    """Answer only when the server is closed."""
    feed: Callable[[Callable[[bytes], None]], bool] | None = None
    """Called with what sends a chunk of the body, which has no length then; false: break off without its end."""

    @classmethod
    def of(cls, body: object, status: int = 200, **headers: str) -> CannedAnswer:
        return cls(status, json.dumps(body).encode(), {name.replace("_", "-"): text for name, text in headers.items()})


def refused(status: int, reason: str, message: str, **headers: str) -> CannedAnswer:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return CannedAnswer.of({**body, "code": status}, status, **headers)


Responder = Callable[[Asked], CannedAnswer]


class StubApiServer:
    """Answers from ``answers`` one by one, then by ``respond``. Use it with ``with``."""

    def __init__(self, pair: KeyPair | None = None, clients: Path | None = None, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.answers: deque[CannedAnswer] = deque()
        self.respond: Responder = lambda _: CannedAnswer()
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def do_GET(self) -> None:
                server._handle(self)

            def do_POST(self) -> None:
                server._handle(self)

            def do_PATCH(self) -> None:
                server._handle(self)

            def do_PUT(self) -> None:
                server._handle(self)

            def do_DELETE(self) -> None:
                server._handle(self)

        self._server = _Quiet(("127.0.0.1", port), Handler, bind_and_activate=True)
        self._server.context = None if pair is None else _context(pair, clients)
        self.port: int = self._server.server_address[1]
        self.url = f"http{'' if pair is None else 's'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> StubApiServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def requests(self, method: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method]

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        data = handler.rfile.read(length)
        certificate = ""
        if isinstance(handler.connection, ssl.SSLSocket):
            known = handler.connection.getpeercert() or {}
            certificate = str(known.get("subject", ""))
        body = json.loads(data) if data else {}
        asked = Asked(
            handler.command, handler.path, dict(handler.headers), body, certificate, handler.client_address[1]
        )
        self.asked.append(asked)
        answer = self.answers.popleft() if self.answers else self.respond(asked)
        if answer.wait:
            self.closing.wait(30)
        if answer.wait or answer.hang_up:
            handler.close_connection = True
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        if answer.feed is not None:
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.close_connection = not answer.feed(lambda data: _chunk(handler, data))
            if not handler.close_connection:
                _chunk(handler, b"")
            return
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        if answer.drip:
            for byte in answer.body:
                handler.wfile.write(bytes((byte,)))
                handler.wfile.flush()
                if self.closing.wait(0.02):
                    return
        else:
            handler.wfile.write(answer.body)


def _chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
    handler.wfile.flush()


class _Quiet(ThreadingHTTPServer):
    """Bad handshakes and broken connections are what is tested: nothing of them is printed."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    context: ssl.SSLContext | None = None

    def finish_request(self, request: object, client_address: object) -> None:
        # Here and not at accept: a handshake that never ends must not keep others waiting.
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
        try:
            super().finish_request(request, client_address)  # type: ignore[arg-type]
        finally:
            request.close()  # type: ignore[attr-defined]

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def _context(pair: KeyPair, clients: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
