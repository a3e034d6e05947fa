"""Requests to the API server with dict bodies, over the client library's connection pool.

Blocking: meant for threads, never for an event loop. Every request ends: there is a limit on connecting, on the whole
answer (a server that drips bytes has one, too) and on its size; ``close`` from another thread ends what is under way
at once, waits between attempts as well. What is tried again: anything that the server asks to try again (Retry-After)
or refuses for being busy (429), anything that never reached it, and reading where it failed; a write that may have been
carried out is not, because only the caller knows what a second one would do. After a 401 a newer credential is looked
for, once.

The transport is the client library's pool of urllib3 connections alone: its typed layer costs another 10 MB, and its
own request methods differ from version to version.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kube.answers import Pairs, Request, decoded, glimpse, no_answer, refused
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject
from kube.configuration import Access
from kube.credentials import Certificate
from kube.deadline import Wire, bound_answers, within
from kube.errors import (
    BadAnswer,
    CertificateRefused,
    Closed,
    RequestError,
    ServerFault,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from kube.library import library
from kube.sockets import Sockets
from kube.streams import Stream

log = logging.getLogger("ostler.kube")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """``connect`` and ``whole``: seconds to a connection, and for all of one attempt. ``attempts`` in all.

    ``largest``, ``line``: bytes of an answer, and of one object in a stream.
    """

    connect: float = 5.0
    whole: float = 20.0
    attempts: int = 4
    largest: int = 64 << 20
    line: int = 16 << 20


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    data: bytes
    retry_after: str


class Client:
    """One API server, one identity. Safe for several threads; ``random`` gives numbers in [0, 1).

    ``connections``: how many are kept for the next requests; as many as threads that ask at the same time. ``pairs``:
    the ``object_pairs_hook`` that answers are parsed with, for who must see keys that an object has twice.
    """

    def __init__(
        self,
        access: Access,
        *,
        random: Callable[[], float],
        user_agent: str = "ostler",
        limits: Limits = Limits(),
        policy: BackoffPolicy = BackoffPolicy(),  # noqa: B008 - frozen
        monotonic: Callable[[], float] = time.monotonic,
        connections: int = 2,
        pairs: Pairs | None = None,
    ) -> None:
        self._access = access
        self._random = random
        self._user_agent = user_agent
        self._limits = limits
        self._policy = policy
        self._monotonic = monotonic
        self._connections = connections
        self._pairs = pairs
        self._closed = threading.Event()
        self._sockets = Sockets()
        self._lock = threading.Lock()
        self._pool: Any = None
        self._certificate: Certificate | None = None

    @property
    def server(self) -> str:
        """The API server's URL, for people."""
        return self._access.server

    def get(self, path: str, query: Mapping[str, str] | None = None, *, attempts: int | None = None) -> JsonObject:
        """Read one object or a list; ``attempts``: instead of the limits', for callers that ask again themselves."""
        return self.request("GET", path, query=query, attempts=attempts)

    def create(self, path: str, body: JsonObject, query: Mapping[str, str] | None = None) -> JsonObject:
        """Create ``body`` in the collection ``path``; what the server made of it. ``query``: ``{"dryRun": "All"}``."""
        return self.request("POST", path, body=body, query=query)

    def patch(self, path: str, body: Json, content_type: str = MERGE_PATCH) -> JsonObject:
        """Change an object; what it is then."""
        return self.request("PATCH", path, body=body, content_type=content_type)

    def replace(self, path: str, body: JsonObject) -> JsonObject:
        """Put ``body`` in the place of the object; ``Conflict`` where that is not of ``metadata.resourceVersion``."""
        return self.request("PUT", path, body=body)

    def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> JsonObject:
        """Delete an object; ``Conflict`` where it has another uid or resource version than is given."""
        wanted: JsonObject = {"uid": uid, "resourceVersion": resource_version}
        preconditions: JsonObject = {key: value for key, value in wanted.items() if value}
        body: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self.request("DELETE", path, body=body if preconditions else None)

    def stream(
        self, path: str, query: Mapping[str, str] | None = None, *, read_timeout: float, whole: float | None = None
    ) -> Stream:
        """Objects one by one as the server writes them, one a line: a watch.

        Over a connection of its own, which is made when the first object is asked for. ``read_timeout``: seconds of
        silence after which the stream fails with ``TimedOut``; ``whole``: seconds after which it does so in any case.
        Nothing is tried again here, save once after a 401.
        """
        request = Request("GET", path, self._access.server, self._access.origin, self._access.credentials.origin)
        wire = Wire(self._limits.whole, read_timeout, whole, self._monotonic, self._sockets)
        return Stream(
            lambda: self._streaming(request, _target(path, query), wire),
            wire,
            request,
            renew=self._renew,
            longest=self._limits.line,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        attempts: int | None = None,
    ) -> JsonObject:
        """The object that the server answers, empty for an empty answer.

        ``path`` begins with ``/`` and is as it stands (see ``path_of``). Raises ``RequestError`` and, where a
        credential cannot be had, ``ConfigurationError``.
        """
        target = _target(path, query)
        most = attempts or self._limits.attempts
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        backoff = Backoff(self._policy, self._random)
        renewed = False
        for attempt in range(1, most + 1):
            try:
                return self._attempt(method, path, target, data, content_type)
            except Unauthorized:
                if renewed or attempt == most:
                    raise
                renewed = True
                self._renew()
            except RequestError as error:
                if attempt == most or not _worth_another(error):
                    raise
                self._pause(backoff.delay(error.retry_after), error)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """End waits, requests that wait for their answer, and streams; only connecting still takes its time."""
        self._closed.set()
        self._sockets.cut()
        self._drop()

    def _pause(self, seconds: float, error: RequestError) -> None:
        log.debug("asking again", extra={"request": f"{error.method} {error.path}", "seconds": round(seconds, 2)})
        if self._closed.wait(seconds):
            raise Closed(error.method, error.path, 0, "", f"closed while waiting after: {error.message}") from error

    def _attempt(self, method: str, path: str, target: str, data: bytes | None, content_type: str) -> JsonObject:
        if self._closed.is_set():
            raise Closed(method, path, 0, "", "the client is closed")
        request = Request(method, path, self._access.server, self._access.origin, self._access.credentials.origin)
        answer = self._exchange(request, target, data, content_type)
        if not 200 <= answer.status < 300:
            raise refused(request, answer.status, answer.data, answer.retry_after)
        if not answer.data.strip():
            return {}
        body = decoded(answer.data, self._pairs)
        if not isinstance(body, dict):
            text = f"the answer is no JSON object: {glimpse(answer.data)}"
            raise BadAnswer(method, path, answer.status, "", text)
        return body

    def _exchange(self, request: Request, target: str, data: bytes | None, content_type: str) -> _Answer:
        import urllib3

        credential = self._access.credentials.current()
        headers = self._headers(credential.authorization)
        if data is not None:
            headers["Content-Type"] = content_type
        timeout = urllib3.Timeout(connect=self._limits.connect, read=self._limits.whole)
        try:
            response = self._pool_for(credential.certificate).request(
                request.method,
                self._access.server + target,
                body=data,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = self._content(response, request)
            except BaseException:
                response.close()
                raise
            response.release_conn()
            return _Answer(response.status, content, response.headers.get("Retry-After", ""))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: names of hosts that are none, which encoders and TLS refuse.
            if self._closed.is_set():
                raise Closed(request.method, request.path, 0, "", "closed while waiting for the answer") from error
            late = f"did not answer, or not to the end, within {self._limits.whole:g} s"
            raise no_answer(request, error, late) from error

    def _headers(self, authorization: str) -> dict[str, str]:
        headers = {"Accept": JSON, "User-Agent": self._user_agent}
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _content(self, response: Any, request: Request) -> bytes:
        """The answer's body, no more of it than it may have."""
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > self._limits.largest:
                text = f"the answer has more than {self._limits.largest} bytes"
                raise BadAnswer(request.method, request.path, response.status, "", text)
        return b"".join(pieces)

    @contextmanager
    def _streaming(self, request: Request, target: str, wire: Wire) -> Iterator[Any]:
        """A stream's response, once the server has agreed; its connection is closed at the end."""
        import urllib3

        if self._closed.is_set():
            raise Closed(request.method, request.path, 0, "", "the client is closed")
        credential = self._access.credentials.current()
        pool = self._made_pool(credential.certificate, 1)
        bound_answers(pool, lambda: wire.left, wire.opened)
        try:
            response = pool.request(
                request.method,
                self._access.server + target,
                headers=self._headers(credential.authorization),
                timeout=urllib3.Timeout(connect=self._limits.connect, read=self._limits.whole),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                if not 200 <= response.status < 300:
                    data = self._content(response, request)
                    raise refused(request, response.status, data, response.headers.get("Retry-After", ""))
                yield response
            finally:
                response.close()
        finally:
            pool.clear()

    def _pool_for(self, certificate: Certificate | None) -> Any:
        with self._lock:
            if self._pool is None or certificate != self._certificate:
                self._pool = self._made_pool(certificate, self._connections)
                bound_answers(self._pool, within(self._limits.whole, self._monotonic), self._sockets.add)
                self._certificate = certificate
            return self._pool

    def _made_pool(self, certificate: Certificate | None, connections: int) -> Any:
        """Files are read at every new connection, so that new certificates are used without being told of them."""
        parts = library()
        access = self._access
        configuration = parts.configuration(host=access.server)
        configuration.verify_ssl = access.verify
        configuration.ssl_ca_cert = access.ca
        configuration.tls_server_name = access.server_name
        configuration.connection_pool_maxsize = connections
        if access.proxy is not None:
            configuration.proxy = access.proxy
        if certificate is not None:
            configuration.cert_file, configuration.key_file = certificate.certificate, certificate.key
        return parts.rest_client(configuration).pool_manager

    def _renew(self) -> None:
        """A connection goes on with the certificate that it began with, which may have ended meanwhile."""
        self._access.credentials.refused()
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.clear()
                self._pool = None


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _worth_another(error: RequestError) -> bool:
    if isinstance(error, CertificateRefused):
        return False
    if isinstance(error, Unreachable):
        return not error.sent or error.method == "GET"
    if isinstance(error, ServerFault):
        return error.retry_after is not None or error.method == "GET"
    return isinstance(error, TooManyRequests)
