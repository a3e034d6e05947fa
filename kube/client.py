"""Requests to the API server with dict bodies, over the client library's connection pool.

Blocking: meant for threads, never for an event loop. Every request ends: there are limits on connecting, on the time
for a whole answer (a server that drips bytes has one, too) and on its size. ``close`` from another thread ends requests
and waits at once. The client repeats a request if the server asks for that (Retry-After) or is busy (429), if the
request never reached the server, and if a read failed. It does not repeat a write that may have been carried out,
because only the caller knows what a second one would do. After a 401 it looks for a newer credential, once.

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
from typing import Any, TypeVar
from urllib.parse import urlencode

from kube.access import Access, Certificate
from kube.answers import ObjectReader, Page, PageReader, Pairs, Reader, Request, no_answer, refused, worth_another
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, whole
from kube.errors import (
    BadAnswer,
    Closed,
    RequestError,
    Unauthorized,
)
from kube.json_stream import WHOLE, Fields
from kube.library import library
from kube.streams import Stream
from kube.wire import Sockets, Wire, bound_answers, within

log = logging.getLogger("ostler.kube")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

T = TypeVar("T")

_PIECE = 1 << 16
_REFUSAL = 1 << 20
"""Most bytes read of a refusal: a Status, or a proxy's page."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one request. ``connect`` and ``whole``: seconds for a connection, and for one whole attempt.

    ``attempts``: in all. ``largest``, ``line``: bytes kept of one object, in an answer or a list, and in a stream. The
    API server stores at most 1.5 MB, which is a few times that as JSON; a list has any size.
    """

    connect: float = 5.0
    whole: float = 20.0
    attempts: int = 4
    largest: int = 8 << 20
    line: int = 8 << 20


@dataclass(frozen=True, slots=True)
class _Question:
    method: str
    path: str
    target: str
    data: bytes | None = None
    content_type: str = JSON


class Client:
    """A client of one API server with one identity. Safe for several threads; ``random`` returns numbers in [0, 1).

    ``connections``: how many stay open for the next requests; as many as threads that use the client at the same time.
    ``pairs``: the ``object_pairs_hook`` that parses answers, for callers that must see an object's duplicate keys.
    """

    def __init__(
        self,
        access: Access,
        *,
        random: Callable[[], float],
        user_agent: str = "ostler",
        limits: RequestLimits = RequestLimits(),
        policy: BackoffPolicy = BackoffPolicy(),  # noqa: B008 - frozen
        connections: int = 2,
        pairs: Pairs | None = None,
    ) -> None:
        self._access = access
        self._random = random
        self._user_agent = user_agent
        self._limits = limits
        self._policy = policy
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

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        fields: Fields = WHOLE,
        attempts: int | None = None,
    ) -> JsonObject:
        """Read one object and keep its ``fields``.

        ``attempts``, here and below: overrides the limit, for callers that repeat the request themselves.
        """
        return self.request("GET", path, query=query, fields=fields, attempts=attempts)

    def page(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        fields: Fields = WHOLE,
        read: Callable[[JsonObject], JsonObject] = whole,
        roomy: int | None = None,
    ) -> Page:
        """Read a list or a page of it, object by object, with one attempt. See ``PageReader``."""

        def reader(request: Request) -> PageReader:
            return PageReader(request, fields, self._limits.largest, self._pairs, read=read, roomy=roomy)

        return self._asked(_Question("GET", path, _target(path, query)), 1, reader)

    def create(
        self, path: str, body: JsonObject, query: Mapping[str, str] | None = None, *, attempts: int | None = None
    ) -> JsonObject:
        """Create ``body`` in the collection ``path``; returns the created object. ``query``: ``{"dryRun": "All"}``."""
        return self.request("POST", path, body=body, query=query, attempts=attempts)

    def patch(self, path: str, body: Json, content_type: str = MERGE_PATCH) -> JsonObject:
        """Patch an object; returns the changed object."""
        return self.request("PATCH", path, body=body, content_type=content_type)

    def replace(self, path: str, body: JsonObject, *, attempts: int | None = None) -> JsonObject:
        """Replace an object; raises ``WriteConflict`` if it no longer has the body's ``metadata.resourceVersion``."""
        return self.request("PUT", path, body=body, attempts=attempts)

    def delete(
        self, path: str, *, uid: str = "", resource_version: str = "", attempts: int | None = None
    ) -> JsonObject:
        """Delete an object; raises ``WriteConflict`` if it has another uid or resource version than the given one."""
        wanted: JsonObject = {"uid": uid, "resourceVersion": resource_version}
        preconditions: JsonObject = {key: value for key, value in wanted.items() if value}
        body: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self.request("DELETE", path, body=body if preconditions else None, attempts=attempts)

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        read_timeout: float,
        whole: float | None = None,
        fields: Fields = WHOLE,
    ) -> Stream:
        """Watch a collection: changes as the server writes them, one a line. ``fields``: what to keep of the objects.

        The stream has its own connection, made when the first object is wanted. ``read_timeout``: seconds of silence
        after which the stream fails with ``TimedOut``; ``whole``: seconds after which it does so anyway. Nothing is
        repeated here except once after a 401.
        """
        request = Request("GET", path, self._access.server, self._access.origin, self._access.credentials.origin)
        wire = Wire(self._limits.whole, read_timeout, whole, time.monotonic, self._sockets)
        return Stream(
            lambda: self._streaming(request, _target(path, query), wire),
            wire,
            request,
            renew=self._renew,
            longest=self._limits.line,
            fields=fields,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        fields: Fields = WHOLE,
        attempts: int | None = None,
    ) -> JsonObject:
        """Send a request; returns the object in the answer, empty for an empty answer.

        ``path`` begins with ``/`` and is escaped already (see ``path_of``). Raises ``RequestError`` and, if there is no
        credential, ``ConfigurationError``. A repetition with a newer credential does not count as an attempt.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()

        def reader(request: Request) -> ObjectReader:
            return ObjectReader(request, fields, self._limits.largest, self._pairs)

        question = _Question(method, path, _target(path, query), data, content_type)
        return self._asked(question, attempts or self._limits.attempts, reader)

    def _asked(self, question: _Question, most: int, reader: Callable[[Request], Reader[T]]) -> T:
        backoff = Backoff(self._policy, self._random)
        attempt, renewed = 1, False
        while True:
            try:
                return self._attempt(question, reader)
            except Unauthorized:
                if renewed:
                    raise
                renewed = True
                self._renew()
            except RequestError as error:
                if attempt == most or not worth_another(error):
                    raise
                attempt += 1
                self._pause(backoff.delay(error.retry_after), error)

    def close(self) -> None:
        """End waits, pending requests and streams; only connecting may still take its time."""
        self._closed.set()
        self._sockets.cut()
        self._drop()

    def _pause(self, seconds: float, error: RequestError) -> None:
        log.debug("asking again", extra={"request": f"{error.method} {error.path}", "seconds": round(seconds, 2)})
        if self._closed.wait(seconds):
            raise Closed(error.method, error.path, 0, "", f"closed while waiting after: {error.message}") from error

    def _attempt(self, question: _Question, reader: Callable[[Request], Reader[T]]) -> T:
        if self._closed.is_set():
            raise Closed(question.method, question.path, 0, "", "the client is closed")
        access = self._access
        request = Request(question.method, question.path, access.server, access.origin, access.credentials.origin)
        response = self._response(request, question)
        taking = reader(request)
        try:
            if not 200 <= response.status < 300:
                content = _content(self._pieces(response, request), request, response.status)
                response.release_conn()
                raise refused(request, response.status, content, response.headers.get("Retry-After", ""))
            for piece in self._pieces(response, request):
                taking.feed(piece)
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return taking.result()

    def _response(self, request: Request, question: _Question) -> Any:
        import urllib3

        credential = self._access.credentials.current()
        headers = self._headers(credential.authorization)
        if question.data is not None:
            headers["Content-Type"] = question.content_type
        timeout = urllib3.Timeout(connect=self._limits.connect, read=self._limits.whole)
        with self._faults(request):
            return self._pool_for(credential.certificate).request(
                request.method,
                self._access.server + question.target,
                body=question.data,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )

    @contextmanager
    def _faults(self, request: Request) -> Iterator[None]:
        """Turn the transport's errors into ours."""
        import urllib3

        try:
            yield
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: invalid host names, which encoders and TLS refuse.
            if self._closed.is_set():
                raise Closed(request.method, request.path, 0, "", "closed while waiting for the answer") from error
            late = f"did not answer completely within {self._limits.whole:g} s"
            raise no_answer(request, error, late) from error

    def _headers(self, authorization: str) -> dict[str, str]:
        headers = {"Accept": JSON, "User-Agent": self._user_agent}
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _pieces(self, response: Any, request: Request) -> Iterator[bytes]:
        """The answer's body as it arrives."""
        while True:
            with self._faults(request):
                piece: bytes = response.read1(_PIECE)
            if not piece:
                return
            yield piece

    @contextmanager
    def _streaming(self, request: Request, target: str, wire: Wire) -> Iterator[Any]:
        """A stream's response once the server has accepted the request; the connection is closed at the end."""
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
                    data = _content(iter(lambda: response.read1(_PIECE), b""), request, response.status)
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
                bound_answers(self._pool, within(self._limits.whole, time.monotonic), self._sockets.add)
                self._certificate = certificate
            return self._pool

    def _made_pool(self, certificate: Certificate | None, connections: int) -> Any:
        """A new pool. It reads files at every new connection, so new certificates take effect by themselves."""
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
        """Drop the credential and all connections: an open one keeps the certificate it began with."""
        self._access.credentials.refused()
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.clear()
                self._pool = None


def _content(pieces: Iterator[bytes], request: Request, status: int) -> bytes:
    """The body of a refusal; raises ``BadAnswer`` if it is too large."""
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > _REFUSAL:
            raise BadAnswer(request.method, request.path, status, "", f"the answer has more than {_REFUSAL} bytes")
    return bytes(content)


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
