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

from tests.cluster.rig.processes import POLL

Object = dict[str, Any]
"""An object of the API as JSON has it."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Refused(Exception):
    """The API server said no; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class NotAsExpected(Exception):
    """An object did not become what was waited for."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks: a pair of files, or a token, or nobody."""

    certificate: Path | None = None
    key: Path | None = None
    token: str = ""


class Api:
    """Requests to one API server; safe to use from several threads."""

    def __init__(self, host: str, authority: Path, credentials: Credentials, port: int = 443) -> None:
        self._host, self._port, self._token = host, port, credentials.token
        self._context = ssl.create_default_context(cafile=str(authority))
        if credentials.certificate is not None:
            self._context.load_cert_chain(credentials.certificate, credentials.key)

    def request(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Any:
        """The answer's document (text where it is none); raises ``Refused``."""
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
                raise Refused(answer.status, content)
            yield answer
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
        except Refused as refused:
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
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        with contextlib.suppress(Refused):
            self.request("DELETE", path, options if grace is None else {**options, "gracePeriodSeconds": grace})

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
        timeout: float = 60.0,
        hopeless: Callable[[], str] = str,
    ) -> Object:
        """The object at ``path`` as soon as ``condition`` holds for it; raises ``NotAsExpected`` with its state.

        ``hopeless`` says why waiting on makes no sense, or ''.
        """
        deadline = time.monotonic() + timeout
        while True:
            last = None
            with contextlib.suppress(OSError, http.client.HTTPException):
                # While the API server starts, or is restarted.
                last = self.find(path)
            if last is not None and condition(last):
                return last
            if why := hopeless():
                raise NotAsExpected(f"{path}: {what}: {why}")
            if time.monotonic() > deadline:
                shown = json.dumps((last or {}).get("status", last), indent=1)
                raise NotAsExpected(f"{path}: {what}: not after {timeout:g} s; it is {shown}")
            time.sleep(POLL)

    def wait_gone(self, path: str, timeout: float = 60.0) -> None:
        """Wait until there is no such object; raises ``NotAsExpected``."""
        deadline = time.monotonic() + timeout
        while self.find(path) is not None:
            if time.monotonic() > deadline:
                raise NotAsExpected(f"{path} is still there after {timeout:g} s")
            time.sleep(POLL)


class KeptApi(Api):
    """Requests over one connection a thread, which is much quicker; to be closed.

    Not for watches, nor where the API server is restarted or not asked for more than a minute.
    """

    def __init__(self, other: Api) -> None:
        self._host, self._port, self._token = other._host, other._port, other._token
        self._context = other._context
        self._own = threading.local()
        self._made: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._made:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = super()._connect(timeout)
            self._made.append(connection)
        return connection

    def _done(self, connection: http.client.HTTPSConnection) -> None:
        """Answers are read to their end, so the connection can be asked again."""
