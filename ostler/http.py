"""/healthz, /readyz and /metrics on one address; nothing here changes anything.

Served by a thread of its own, so that a loop that hangs is told as "not alive" instead of as silence. Answers read
values that the loop replaces whole, so no lock is needed.
"""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("ostler.http")

REQUEST_TIMEOUT = 10.0
"""Seconds a client may take for its request; half-open connections end then."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: status code, content type and body."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def lines(cls, ok: bool, *lines: str) -> Page:
        """Plain text, 200 when ``ok``, else 503."""
        return cls(200 if ok else 503, "text/plain; charset=utf-8", "".join(f"{line}\n" for line in lines).encode())


class AddressInvalid(Exception):
    """The address is not ``host:port``."""


def split_address(address: str) -> tuple[str, int]:
    """``host`` and ``port`` of ``host:port`` or ``[host]:port``; an empty host means all addresses."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise AddressInvalid(f"{address!r} is not host:port, such as 0.0.0.0:9410")
    return host.strip("[]") or "0.0.0.0", int(port)


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class HttpServer:
    """Serves ``pages`` (path to a function that makes the page) at ``address``; raises OSError from ``start``."""

    def __init__(self, address: str, pages: dict[str, Callable[[], Page]]) -> None:
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server_class = type("Server", (_Server,), {"address_family": family})
        self._server = server_class((host, port), _handler(pages))
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", args=(5.0,), daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on (of use when 0 was asked for)."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving; may take as long as a request that is being answered, at most a second."""
        stopper = threading.Thread(target=self._server.shutdown, name="http-stop", daemon=True)
        stopper.start()
        # The serving thread sleeps until somebody connects or its poll ends; this connection wakes it.
        with contextlib.suppress(OSError), socket.create_connection(self._server.server_address[:2], timeout=1.0):
            stopper.join(1.0)
        self._server.server_close()


def _handler(pages: dict[str, Callable[[], Page]]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        server_version = "ostler"
        sys_version = ""
        timeout = REQUEST_TIMEOUT

        def do_GET(self) -> None:  # the name is http.server's
            page = pages.get(self.path.partition("?")[0])
            self._answer(page() if page is not None else Page(404, "text/plain", _index(pages)))

        do_HEAD = do_GET  # noqa: N815  # the name is http.server's

        def _answer(self, page: Page) -> None:
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name is http.server's
            log.debug("request", extra={"client": self.address_string(), "line": format % arguments})

    return Handler


def _index(pages: dict[str, Callable[[], Page]]) -> bytes:
    return f"there is {', '.join(sorted(pages))}\n".encode()
