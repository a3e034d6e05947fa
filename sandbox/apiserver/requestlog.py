"""The log of requests in the order of their arrival: how a test sees what a client does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sandbox.apiserver.routes import Route

_READS: Final = ("get", "list", "watch")


@dataclass(slots=True)
class LoggedRequest:
    """`code`: 0 while there is no answer; `injected`: the answer was made by a fault; `body`: as it was sent."""

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
    """Thread-safe; iterate over it for a copy."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[LoggedRequest] = []

    def __iter__(self) -> Iterator[LoggedRequest]:
        with self._changed:
            return iter(list(self._all))

    def __len__(self) -> int:
        with self._changed:
            return len(self._all)

    def begin(self, route: Route, body: object, user_agent: str) -> LoggedRequest:
        """Write down a request that has arrived."""
        kind = route.kind.plural
        query = dict(route.query)
        asked = LoggedRequest(route.verb, kind, route.part, route.version, route.namespace, route.name, query, body)
        asked.user_agent = user_agent
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

    def writes(self, resource: str | None = None) -> list[LoggedRequest]:
        """Return the requests for changes."""
        return [each for each in self.of(resource=resource) if each.write]

    def wait(self, condition: Callable[[list[LoggedRequest]], object], seconds: float = 10.0) -> bool:
        """Wait until the condition holds for the requests so far; tell whether it did in time."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: condition(list(self._all)), seconds))
