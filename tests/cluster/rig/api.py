"""The API server as tests see it: requests with dict bodies, and waiting for an object to be as it should.

Deliberately not ``kube``: what is tested must not be its own judge.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.cluster.rig.processes import FIRST_PAUSE, PATIENCE, pauses

Object = dict[str, Any]
"""An object of the API as JSON has it."""

_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class ApiRefused(Exception):
    """The API server said no; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status

    @property
    def is_for_now(self) -> bool:
        """Whether the server was busy, or has just started: the same request is answered otherwise a moment later."""
        return self.status == _TOO_MANY_REQUESTS or self.status >= _SERVER_ERROR


class NotAsExpected(Exception):
    """An object did not become what was waited for."""


@dataclass(frozen=True, slots=True)
class RigCredentials:
    """Who asks: a pair of files, or a token, or nobody."""

    certificate: Path | None = None
    key: Path | None = None
    token: str = ""


class RigApi:
    """Requests to one API server; safe to use from several threads."""

    def __init__(self, host: str, authority: Path, credentials: RigCredentials, port: int = 443) -> None:
        self._host, self._port, self._token = host, port, credentials.token
        self._context = ssl.create_default_context(cafile=str(authority))
        if credentials.certificate is not None:
            self._context.load_cert_chain(credentials.certificate, credentials.key)

    def request(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Any:
        """The answer's document (text where it is none); raises ``ApiRefused``."""
        with self._answer(method, path, body, kind) as answer:
            content = answer.read()
        try:
            return json.loads(content)
        except ValueError:
            return content.decode()

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json", timeout: float = 60.0
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connect(timeout)
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                content = answer.read().decode(errors="replace")
                with contextlib.suppress(ValueError, AttributeError):
                    content = json.loads(content)["message"]
                raise ApiRefused(answer.status, content)
            yield answer
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        finally:
            self._done(connection)

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, context=self._context, timeout=timeout)

    def _done(self, connection: http.client.HTTPSConnection) -> None:
        connection.close()

    def kept(self) -> KeptApi:
        """The same over kept connections."""
        return KeptApi(self)

    def get(self, path: str) -> Any:
        """One object, or a list's document."""
        return self.request("GET", path)

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        found: list[Object] = self.get(path)["items"]
        return found

    def find(self, path: str) -> Object | None:
        """An object, None where there is none."""
        try:
            found: Object = self.get(path)
        except ApiRefused as refused:
            if refused.status == 404:
                return None
            raise
        return found

    def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection ``path``."""
        made: Object = self.request("POST", path, body)
        return made

    def delete(self, path: str, grace: int | None = 0) -> None:
        """Delete an object, which may be gone; without grace the kubelet is not waited for."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.request("DELETE", path, options)
            except ApiRefused as refused:
                if refused.is_for_now and time.monotonic() < deadline:
                    time.sleep(FIRST_PAUSE)
                    continue
            return

    def watch(self, path: str, timeout: float = 120.0, **options: str) -> Iterator[tuple[str, Object]]:
        """Kind and object of every change (``path`` is a collection), until the caller stops or ``timeout``."""
        query = urlencode({"watch": "true", "timeoutSeconds": str(int(timeout)), **options}, quote_via=quote)
        with self._answer("GET", f"{path}?{query}", timeout=timeout + 5) as answer:
            for line in answer:
                event = json.loads(line)
                yield event["type"], event["object"]

    def wait(
        self,
        path: str,
        what: str,
        condition: Callable[[Object], bool],
        timeout: float = PATIENCE,
        hopeless: Callable[[], str] = str,
    ) -> Object:
        """The object at ``path`` as soon as ``condition`` holds for it; raises ``NotAsExpected`` with its state.

        ``hopeless`` says why waiting on makes no sense, or ''.
        """
        deadline, looks = time.monotonic() + timeout, pauses()
        with self._asking_again() as api:
            while True:
                last = api._found(path)
                if last is not None and condition(last):
                    return last
                if why := hopeless():
                    raise NotAsExpected(f"{path}: {what}: {why}")
                if time.monotonic() > deadline:
                    shown = json.dumps((last or {}).get("status", last), indent=1)
                    raise NotAsExpected(f"{path}: {what}: not after {timeout:g} s; it is {shown}")
                time.sleep(next(looks))

    def wait_gone(self, path: str, timeout: float = PATIENCE) -> None:
        """Wait until there is no such object; raises ``NotAsExpected``."""
        unknown: Object = {}
        deadline, looks = time.monotonic() + timeout, pauses()
        with self._asking_again() as api:
            while api._found(path, unknown) is not None:
                if time.monotonic() > deadline:
                    raise NotAsExpected(f"{path} is still there after {timeout:g} s")
                time.sleep(next(looks))

    def _asking_again(self) -> contextlib.AbstractContextManager[RigApi]:
        """The same for many requests, over one connection."""
        return contextlib.closing(self.kept())

    def _found(self, path: str, unknown: Object | None = None) -> Object | None:
        """An object, None where there is none; ``unknown`` while the API server starts, is restarted or is busy."""
        try:
            return self.find(path)
        except (OSError, http.client.HTTPException):
            return unknown
        except ApiRefused as refused:
            if not refused.is_for_now:
                raise
            return unknown


IDLE = 30.0
"""Seconds after which a kept connection is made anew; the API server closes it after 90."""


class KeptApi(RigApi):
    """Requests over one connection a thread, which cost a third of what new ones do; to be closed.

    Not for watches. Where the API server is restarted, one request fails with OSError.
    """

    def __init__(self, other: RigApi) -> None:
        self._host, self._port, self._token = other._host, other._port, other._token
        self._context = other._context
        self._own = threading.local()
        self._made: list[http.client.HTTPSConnection] = []

    def _asking_again(self) -> contextlib.AbstractContextManager[RigApi]:
        return contextlib.nullcontext(self)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._made:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = super()._connect(timeout)
            self._made.append(connection)
        elif time.monotonic() - self._own.used > IDLE:
            # The next request opens it again.
            connection.close()
        return connection

    def _done(self, connection: http.client.HTTPSConnection) -> None:
        """Answers are read to their end, so the connection can be asked again."""
        self._own.used = time.monotonic()
