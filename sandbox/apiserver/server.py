"""The API server's stand-in: real HTTP on 127.0.0.1, in threads of its own.

Why: what runs against it needs no cluster, and a test can say what goes wrong and see what was asked. It judges objects
by the rules this project knows as vectors of a real server; it has no authentication, no admission plugins, no garbage
collection and no server-side apply (see docs/decisions/0021-api-stand-in.md).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from sandbox.apiserver import refusals, routes
from sandbox.apiserver.answers import Answers, Reply
from sandbox.apiserver.connections import Connection, HangUp, Listener
from sandbox.apiserver.kinds import RESOURCE_GROUP, VERSIONS, Catalogue
from sandbox.apiserver.lifecycle import MetadataWriter
from sandbox.apiserver.objects import Objects
from sandbox.apiserver.refusals import StatusError
from sandbox.apiserver.routes import ApiRoute, described
from sandbox.apiserver.store import Store
from sandbox.apiserver.strategy import Strategy
from sandbox.apiserver.watching import Watches
from scheduling.api.validation.shapes import DEFAULT, Gates

KINDS: Final = ("status", "lost-response", "race", "close", "hang")
_READS: Final = ("get", "list", "watch")
GATES_OFF: Final = Gates(
    device_taints=False, partitionable_devices=False, consumable_capacity=False, binding_conditions=False
)
"""The server "gates-off" of tests/vectors/slices."""
_LOOK: Final = 0.1
"""Seconds after which a request that hangs looks whether its client has given up."""


@dataclass(slots=True)
class InjectedFault:
    """A fault and how often it still strikes. `count` -1: always; `hits`: how often it has.

    The kinds are those of tests/vectors/slices, and two more:

    * `status`: answer with `status` without carrying the request out;
    * `lost-response`: carry it out, then break the connection instead of answering;
    * `race`: do `then` just before it is carried out;
    * `close`: break the connection without carrying it out;
    * `hang`: keep it without an answer, until the client gives up, the faults are cleared or the server goes down.
    """

    verb: str
    kind: str
    status: int
    skip: int
    count: int
    then: Callable[[], object] | None
    retry_after: int | None
    resource: str | None
    message: str
    by: str
    hits: int = 0


class FaultInjector:
    """Faults that wait for their request. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[InjectedFault] = []
        self.lifted = threading.Event()
        """Set when requests that hang have to end."""

    def add(
        self,
        verb: str,
        kind: str = "status",
        status: int | None = None,
        *,
        skip: int = 0,
        count: int = 1,
        then: Callable[[], object] | None = None,
        retry_after: int | None = None,
        resource: str | None = None,
        message: str = "injected",
        by: str = "",
    ) -> InjectedFault:
        """Let `skip` requests of `verb` pass, then spoil `count` (-1: all).

        `verb` "*": any; `resource`: plural of the kind, None: any; `then`: called before, without arguments;
        `retry_after`: seconds, for the header; `by`: the beginning of the user agents that it affects. Raises
        ValueError for an unknown `kind`.
        """
        if kind not in KINDS:
            raise ValueError(f"fault {kind!r} is unknown; use one of {', '.join(KINDS)}")
        fault = InjectedFault(verb, kind, status or 500, skip, count, then, retry_after, resource, message, by)
        with self._lock:
            self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        """Let everything pass, and end what hangs."""
        with self._lock:
            self._waiting.clear()
        self.lift()

    def lift(self) -> None:
        """End what hangs."""
        lifted, self.lifted = self.lifted, threading.Event()
        lifted.set()

    def next(self, verb: str, resource: str, user_agent: str) -> InjectedFault | None:
        """Return what goes wrong with this request, if anything."""
        with self._lock:
            for fault in self._waiting:
                if not user_agent.startswith(fault.by):
                    continue
                if fault.verb not in ("*", verb) or fault.resource not in (None, resource) or fault.count == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.count -= 1 if fault.count > 0 else 0
                fault.hits += 1
                return fault
        return None


@dataclass(slots=True)
class LoggedRequest:
    """`code`: 0 before the answer; `injected`: the answer was made by a fault; `body`: as it was sent."""

    verb: str
    resource: str
    part: str
    version: str
    namespace: str
    name: str
    query: dict[str, str]
    body: Any
    user_agent: str = ""
    code: int = 0
    injected: bool = False

    @property
    def write(self) -> bool:
        """Whether it asks for a change."""
        return self.verb not in _READS


class RequestLog:
    """The requests in the order of their arrival: how a test sees what a client does. Iterate over it for a copy."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[LoggedRequest] = []

    def __iter__(self) -> Iterator[LoggedRequest]:
        with self._changed:
            return iter(list(self._all))

    def __len__(self) -> int:
        with self._changed:
            return len(self._all)

    def begin(self, route: ApiRoute, body: object, user_agent: str) -> LoggedRequest:
        """Write down a request that has arrived."""
        kind = route.kind.plural
        query = dict(route.query)
        asked = LoggedRequest(
            route.verb, kind, route.part, route.version, route.namespace, route.name, query, body, user_agent
        )
        with self._changed:
            self._all.append(asked)
            self._changed.notify_all()
        return asked

    def end(self, asked: LoggedRequest, code: int, *, injected: bool = False) -> None:
        """Write down its answer."""
        with self._changed:
            asked.code, asked.injected = code, injected
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget what was."""
        with self._changed:
            self._all.clear()

    def of(self, verb: str | None = None, resource: str | None = None) -> list[LoggedRequest]:
        """Return the requests of a verb and resource; None: of any."""
        return [each for each in self if verb in (None, each.verb) and resource in (None, each.resource)]

    def answered(self, verb: str, resource: str) -> list[LoggedRequest]:
        """Return those that have their answer: a watch among them ends with `ApiServer.close_watches`."""
        return [each for each in self.of(verb, resource) if each.code]

    def writes(self, resource: str | None = None) -> list[LoggedRequest]:
        """Return the requests for changes."""
        return [each for each in self.of(resource=resource) if each.write]

    def wait(self, condition: Callable[[list[LoggedRequest]], object], seconds: float = 120.0) -> bool:
        """Wait until the condition holds for the requests so far; tell whether it did in time."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: condition(list(self._all)), seconds))


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
        self._listener = Listener(self)
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
            self._watches.close(refusals.expired("The resourceVersion is too old") if expired else None)
            self._objects.changed.notify_all()

    def forget_history(self) -> None:
        """Compact: watches that resume from before now, and lists that continue, are answered 410."""
        with self._objects.changed:
            self._objects.history.forget()
        self._answers.pages.forget()

    def gates(self, gates: Gates) -> None:
        """Have other features from now on, as a server that was begun again; what is stored stays."""
        self._objects.use(Strategy(gates))

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
