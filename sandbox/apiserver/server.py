"""The API server's stand-in: real HTTP on 127.0.0.1, in threads of its own.

Why: what runs against it needs no cluster, and a test can say what goes wrong and see what was asked. It judges objects
by the rules this project knows as vectors of a real server; it has no authentication, no admission plugins, no garbage
collection and no server-side apply (see docs/decisions/0021-api-stand-in.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Final

from sandbox.apiserver import refusals, routes
from sandbox.apiserver.answers import Answers, Reply
from sandbox.apiserver.connections import Connection, HangUp, Listener
from sandbox.apiserver.faults import FaultInjector, InjectedFault
from sandbox.apiserver.kinds import RESOURCE_GROUP, VERSIONS, Catalogue
from sandbox.apiserver.lifecycle import MetadataWriter
from sandbox.apiserver.objects import Objects
from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.requestlog import LoggedRequest, RequestLog
from sandbox.apiserver.routes import described
from sandbox.apiserver.store import Store
from sandbox.apiserver.strategy import Strategy
from sandbox.apiserver.watching import Watches
from scheduling.api.validation.shapes import DEFAULT, Gates

GATES_OFF: Final = Gates(
    device_taints=False, partitionable_devices=False, consumable_capacity=False, binding_conditions=False
)
"""The server "gates-off" of tests/vectors/slices."""
_LOOK: Final = 0.1
"""Seconds after which a request that hangs looks whether its client has given up."""


class ApiServer:
    """Use it with `with`, or `start` and `stop`.

    `gates`: optional features; `versions`: those of `resource.k8s.io` that are served, the preferred one first, none:
    DRA is off; `minor`: Kubernetes 1.x that it takes itself for; `clock`: seconds since the epoch; `random`: for uids
    and names; `bookmarks`: seconds between bookmarks.
    """

    def __init__(
        self,
        gates: Gates = DEFAULT,
        versions: Iterable[str] = VERSIONS,
        *,
        minor: int = 36,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        bookmarks: float = 60.0,
    ) -> None:
        catalogue = Catalogue(versions, minor)
        self._objects = Objects(catalogue, Strategy(gates), MetadataWriter(clock, random or Random()))  # noqa: S311 - names
        self._watches = Watches(bookmarks)
        self._answers = Answers(self._objects, self._watches)
        self._listener = Listener(lambda connection, address: Connection(connection, address, self))
        self.store = Store(self._objects)
        """The objects, for other actors beside the client under test."""
        self.requests = RequestLog()
        """Requests that came over HTTP."""
        self.faults = FaultInjector()
        """Faults to inject."""

    @property
    def url(self) -> str:
        """Its URL, the same for as long as it lives."""
        return f"http://127.0.0.1:{self._listener.port}"

    def start(self) -> ApiServer:
        """Listen."""
        self._listener.up()
        return self

    def stop(self) -> None:
        """End everything."""
        self._quiet()
        self._listener.close()

    def __enter__(self) -> ApiServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def down(self) -> None:
        """Refuse connections and break those there are; the objects stay."""
        self._quiet()
        self._listener.down()

    def up(self) -> None:
        """Listen again, at the same place."""
        self._listener.up()

    def close_watches(self, *, expired: bool = False) -> None:
        """End all watches: without an error, as a server does that ends; `expired`: with an ERROR event of 410."""
        with self._objects.changed:
            self._watches.farewell = refusals.expired("The resourceVersion is too old") if expired else None
            self._watches.closed += 1
            self._objects.changed.notify_all()

    def forget_history(self) -> None:
        """Compact: watches that resume from before now, and lists that continue, are answered 410."""
        with self._objects.changed:
            self._objects.history.forget()
        self._answers.pages.forget()

    def gates(self, gates: Gates) -> None:
        """Have other features from now on, as a server that was begun again; what is stored stays."""
        self._objects.judge = Strategy(gates)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server; return its path."""
        cluster, user = {"server": self.url}, {"token": "sandbox"}
        context = {"cluster": "sandbox", "user": "sandbox"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "sandbox", "user": user}],
            "contexts": [{"name": "sandbox", "context": context}],
            "current-context": "sandbox",
        }
        path.write_text(json.dumps(config, indent=2) + "\n")
        return path

    def exchange(self, connection: Connection, body: object) -> Reply:
        """Answer one request. Raises StatusError, HangUp."""
        catalogue = self._objects.catalogue
        parts, query = routes.split(connection.path)
        route = routes.route(catalogue, connection.command, parts, query)
        if route is None:
            return self._other(connection.command, parts)
        asked = self.requests.begin(route, body, connection.headers.get("User-Agent", ""))
        fault = self.faults.next(route.verb, route.kind.plural, asked.user_agent)
        try:
            if fault is not None:
                self._spoil(fault, asked, connection)
            answer = self._answers.answer(route, body, connection.content_type)
        except StatusError as refusal:
            injected = fault is not None and fault.kind == "status"
            self.requests.end(asked, refusal.code, injected=injected)
            raise
        self.requests.end(asked, answer.code)
        if fault is not None and fault.kind == "lost-response":
            raise HangUp
        return answer

    def _other(self, method: str, parts: tuple[str, ...]) -> Reply:
        """Answer what is not about objects."""
        catalogue = self._objects.catalogue
        found = described(catalogue, parts) if method == "GET" else None
        if found is not None:
            return Reply(body=found)
        if parts[:1] == ("api",) or (parts[:2] == ("apis", RESOURCE_GROUP) and catalogue.versions):
            raise refusals.no_such_resource()
        return Reply(404, "404 page not found\n")

    def _spoil(self, fault: InjectedFault, asked: LoggedRequest, connection: Connection) -> None:
        if fault.then is not None:
            fault.then()
        if fault.kind == "status":
            raise StatusError(fault.status, fault.message, retry_after=fault.retry_after)
        if fault.kind in ("close", "hang"):
            lifted = self.faults.lifted
            while fault.kind == "hang" and not lifted.wait(_LOOK) and not connection.gone:
                pass
            self.requests.end(asked, 0, injected=True)
            raise HangUp

    def _quiet(self) -> None:
        self.close_watches()
        self.faults.lift()
