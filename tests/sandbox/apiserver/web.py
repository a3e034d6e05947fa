"""A client with nothing in it: what is tested is the server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlencode

from sandbox.apiserver.server import ApiServer

RESOURCES = "/apis/resource.k8s.io/v1"
SLICES = f"{RESOURCES}/resourceslices"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
PATIENCE = 30.0


class WebReply(NamedTuple):
    code: int
    body: Any
    headers: dict[str, str]


def ask(
    server: ApiServer, method: str, path: str, body: object = None, content_type: str = "application/json", **query: str
) -> WebReply:
    """One request on a connection of its own; names of `query` are as they stand."""
    connection = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=PATIENCE)
    try:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        connection.request(method, target, data, {"Content-Type": content_type} if data else {})
        response = connection.getresponse()
        text = response.read()
        is_json = response.getheader("Content-Type", "").startswith("application/json")
        return WebReply(response.status, json.loads(text) if is_json else text.decode(), dict(response.getheaders()))
    finally:
        connection.close()


class _Stream:
    """A watch that is open; `events` grows."""

    def __init__(self, response: HTTPResponse) -> None:
        self.events: list[Any] = []
        self._grown = threading.Condition()
        self._ended = False
        self._response = response
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._response:
                with self._grown:
                    self.events.append(json.loads(line))
                    self._grown.notify_all()
        except (OSError, ValueError, AttributeError):
            pass  # closed under it
        finally:
            with self._grown:
                self._ended = True
                self._grown.notify_all()

    def first(self, count: int) -> list[tuple[str, str]]:
        """The first events as (type, name), once there are so many."""
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.events) >= count or self._ended, PATIENCE)
        shown = [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events]
        assert len(shown) >= count, shown
        return shown[:count]

    def ended(self) -> bool:
        """Whether it ends in time."""
        with self._grown:
            return self._grown.wait_for(lambda: self._ended, PATIENCE)


@contextmanager
def watching(server: ApiServer, path: str, **query: str) -> Iterator[_Stream]:
    connection = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=PATIENCE)
    connection.request("GET", f"{path}?{urlencode({'watch': 'true', **query})}")
    response = connection.getresponse()
    assert response.status == 200
    opened = connection.sock
    try:
        yield _Stream(response)
    finally:
        if opened is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        connection.close()


def slice_of(name: str = "s", *, node: str = "n", driver: str = "drv.example.com", **spec: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    whole: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}}
    return whole | {"spec": {"driver": driver, "nodeName": node, "pool": pool} | spec}


def claim_of(name: str = "c", **metadata: Any) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]
    whole: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return whole | {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": requests}}}
