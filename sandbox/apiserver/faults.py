"""Faults that are injected into answers: those of tests/vectors/slices, and two more.

* `status`: answer with `status` without carrying the request out;
* `lost-response`: carry it out, then break the connection instead of answering;
* `race`: do `then` just before it is carried out;
* `close`: break the connection without carrying it out;
* `hang`: keep it without an answer, until the client gives up, the faults are cleared or the server goes down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("status", "lost-response", "race", "close", "hang")


@dataclass(slots=True)
class InjectedFault:
    """A fault and how often it still strikes. `count` -1: always; `hits`: how often it has."""

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
        `retry_after`: seconds, for the header; `by`: how the user agent of those who are meant begins.
        Raises ValueError for an unknown `kind`.
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
