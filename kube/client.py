"""Requests to the API server with dict bodies, over the client library's connection pool.

Blocking: meant for a thread of its own, never for an event loop. Every request ends: there is a limit on connecting, on
the whole answer (a server that drips bytes has one, too) and on its size; ``close`` from another thread ends a wait
between attempts at once. What is tried again: anything that the server asks to try again (Retry-After) or refuses for
being busy (429), anything that never reached it, and reading where it failed; a write that may have been carried out
is not, because only the caller knows what a second one would do. After a 401 a newer credential is looked for, once.

The transport is the client library's pool of urllib3 connections alone: its typed layer costs another 10 MB, and its
own request methods differ from version to version.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, one_line, text_at
from kube.configuration import Access
from kube.credentials import Certificate
from kube.deadline import bound_answers
from kube.errors import (
    BadAnswer,
    CertificateRefused,
    Closed,
    RequestError,
    ServerFault,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    refusal,
)
from kube.library import library

log = logging.getLogger("ostler.kube")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_PIECE = 1 << 16
_GLIMPSE = 120
"""Characters that are shown of an answer that is not what it should be."""
_MESSAGE, _REASON = 1024, 128
"""Characters that are kept of what the server says about a refusal."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``connect`` and ``whole``: seconds to a connection, and for all of one attempt. ``attempts`` in all.

    ``largest``: bytes of an answer.
    """

    connect: float = 5.0
    whole: float = 20.0
    attempts: int = 4
    largest: int = 64 << 20


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    data: bytes
    retry_after: str


class Client:
    """One API server, one identity. Safe for several threads; ``random`` gives numbers in [0, 1)."""

    def __init__(
        self,
        access: Access,
        *,
        random: Callable[[], float],
        user_agent: str = "ostler",
        limits: Limits = Limits(),
        policy: BackoffPolicy = BackoffPolicy(),  # noqa: B008 - frozen
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._random = random
        self._user_agent = user_agent
        self._limits = limits
        self._policy = policy
        self._monotonic = monotonic
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pool: Any = None
        self._certificate: Certificate | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Read one object or a list."""
        return self.request("GET", path, query=query)

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create ``body`` in the collection ``path``; what the server made of it."""
        return self.request("POST", path, body=body)

    def patch(self, path: str, body: Json, content_type: str = MERGE_PATCH) -> JsonObject:
        """Change an object; what it is then."""
        return self.request("PATCH", path, body=body, content_type=content_type)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> JsonObject:
        """The object that the server answers, empty for an empty answer.

        ``path`` begins with ``/`` and is as it stands (see ``path_of``). Raises ``RequestError`` and, where a
        credential cannot be had, ``ConfigurationError``.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        backoff = Backoff(self._policy, self._random)
        renewed = False
        for attempt in range(1, self._limits.attempts + 1):
            try:
                return self._attempt(method, path, target, data, content_type)
            except Unauthorized:
                if renewed or attempt == self._limits.attempts:
                    raise
                renewed = True
                self._renew()
            except RequestError as error:
                if attempt == self._limits.attempts or not _worth_another(error):
                    raise
                self._pause(backoff.delay(error.retry_after), error)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """End waits and drop idle connections; a request on its way ends by its limits."""
        self._closed.set()
        self._drop()

    def _pause(self, seconds: float, error: RequestError) -> None:
        log.debug("asking again", extra={"request": f"{error.method} {error.path}", "seconds": round(seconds, 2)})
        if self._closed.wait(seconds):
            raise Closed(error.method, error.path, 0, "", f"closed while waiting after: {error.message}") from error

    def _attempt(self, method: str, path: str, target: str, data: bytes | None, content_type: str) -> JsonObject:
        if self._closed.is_set():
            raise Closed(method, path, 0, "", "the client is closed")
        answer = self._exchange(method, path, target, data, content_type)
        if not 200 <= answer.status < 300:
            raise self._refusal(method, path, answer)
        if not answer.data.strip():
            return {}
        body = _decoded(answer.data)
        if not isinstance(body, dict):
            text = f"the answer is no JSON object: {_glimpse(answer.data)}"
            raise BadAnswer(method, path, answer.status, "", text)
        return body

    def _exchange(self, method: str, path: str, target: str, data: bytes | None, content_type: str) -> _Answer:
        import urllib3

        credential = self._access.credentials.current()
        headers = {"Accept": JSON, "User-Agent": self._user_agent}
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        if data is not None:
            headers["Content-Type"] = content_type
        timeout = urllib3.Timeout(connect=self._limits.connect, read=self._limits.whole)
        try:
            response = self._pool_for(credential.certificate).request(
                method,
                self._access.server + target,
                body=data,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = self._content(response, method, path)
            except BaseException:
                response.close()
                raise
            response.release_conn()
            return _Answer(response.status, content, response.headers.get("Retry-After", ""))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: names of hosts that are none, which encoders and TLS refuse.
            raise self._no_answer(method, path, error) from error

    def _content(self, response: Any, method: str, path: str) -> bytes:
        """The answer's body, no more of it than it may have."""
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > self._limits.largest:
                text = f"the answer has more than {self._limits.largest} bytes"
                raise BadAnswer(method, path, response.status, "", text)
        return b"".join(pieces)

    def _no_answer(self, method: str, path: str, error: Exception) -> RequestError:
        from urllib3 import exceptions

        server, origin = self._access.server, self._access.origin
        reason = _reason(error)
        if isinstance(error, exceptions.SSLError):
            text = (
                f"{server} and we do not trust each other ({reason}); check CA, server name and certificate in {origin}"
            )
            return CertificateRefused(method, path, text, sent=False)
        if isinstance(error, exceptions.ProxyError):
            # Not by its URL, which may hold a password.
            return Unreachable(method, path, f"{server} cannot be reached through its proxy ({reason})", sent=False)
        if isinstance(error, (exceptions.ConnectTimeoutError, exceptions.NewConnectionError, ValueError)):
            return Unreachable(method, path, f"{server} cannot be reached ({reason})", sent=False)
        if isinstance(error, exceptions.TimeoutError):
            text = f"{server} did not answer, or not to the end, within {self._limits.whole:g} s"
            return TimedOut(method, path, text, sent=True)
        return Unreachable(method, path, f"{server}: the connection broke ({reason})", sent=True)

    def _refusal(self, method: str, path: str, answer: _Answer) -> RequestError:
        body = _decoded(answer.data)
        message = one_line(text_at(body, "message"), _MESSAGE) or _glimpse(answer.data) or _phrase(answer.status)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            origin = self._access.credentials.origin
            message = f"the API server does not accept {origin} ({message}); check it, and that it is for this server"
        seconds = float(answer.retry_after) if answer.retry_after.isascii() and answer.retry_after.isdigit() else None
        reason = one_line(text_at(body, "reason"), _REASON)
        return refusal(method, path, answer.status, reason, message, retry_after=seconds)

    def _pool_for(self, certificate: Certificate | None) -> Any:
        with self._lock:
            if self._pool is None or certificate != self._certificate:
                self._pool = self._made_pool(certificate)
                self._certificate = certificate
            return self._pool

    def _made_pool(self, certificate: Certificate | None) -> Any:
        """Files are read at every new connection, so that new certificates are used without being told of them."""
        parts = library()
        access = self._access
        configuration = parts.configuration(host=access.server)
        configuration.verify_ssl = access.verify
        configuration.ssl_ca_cert = access.ca
        configuration.tls_server_name = access.server_name
        configuration.connection_pool_maxsize = 2
        if access.proxy is not None:
            configuration.proxy = access.proxy
        if certificate is not None:
            configuration.cert_file, configuration.key_file = certificate.certificate, certificate.key
        pool = parts.rest_client(configuration).pool_manager
        bound_answers(pool, self._limits.whole, self._monotonic)
        return pool

    def _renew(self) -> None:
        """A connection goes on with the certificate that it began with, which may have ended meanwhile."""
        self._access.credentials.refused()
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.clear()
                self._pool = None


def path_of(*parts: str) -> str:
    """A path of the API with its parts escaped: ``path_of("api", "v1", "nodes", name)``."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _worth_another(error: RequestError) -> bool:
    if isinstance(error, CertificateRefused):
        return False
    if isinstance(error, Unreachable):
        return not error.sent or error.method == "GET"
    if isinstance(error, ServerFault):
        return error.retry_after is not None or error.method == "GET"
    return isinstance(error, TooManyRequests)


def _decoded(data: bytes) -> Json:
    try:
        decoded: Json = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return decoded


def _glimpse(data: bytes) -> str:
    """The beginning of an answer that is not what it should be, safe to print."""
    return one_line(data[: 4 * _GLIMPSE].decode("utf-8", "replace"), _GLIMPSE)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _reason(error: BaseException) -> str:
    """The innermost cause in few words, without the library's decoration."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return getattr(inner, "verify_message", "") or inner.strerror
        error, inner = inner, inner.__cause__ or inner.__context__
    arguments = [argument for argument in error.args if isinstance(argument, str)]
    return one_line(arguments[0] if arguments else "", _GLIMPSE) or type(error).__name__
