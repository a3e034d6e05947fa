"""One watch: what has happened since a resource version, and what happens from now on.

A selector turns changes into coming and going: an object that is no longer meant is DELETED for this watch, with its
last state that was meant. Watches end after the time the client names, or a random one of 30 to 60 minutes.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.apiserver.bodies import outgoing
from sandbox.apiserver.kinds import Json, Object
from sandbox.apiserver.objects import Objects, StoredChange
from sandbox.apiserver.refusals import StatusError, internal, invalid_options
from sandbox.apiserver.routes import ApiRoute, ListSelector
from scheduling.api.validation.cause import forbidden

_LOOK: Final = 0.5
"""Seconds after which an idle watch looks whether its client is still there."""
_LAST_BOOKMARK: Final = 2.0
"""Seconds before its end that a watch gets its last bookmark."""
_DIGITS: Final = re.compile(r"[0-9]*")
_DIGITS_MOST: Final = 19
"""Of a resource version: as many as a number of 64 bits has for sure."""
_INITIAL_END: Final = {"annotations": {"k8s.io/initial-events-end": "true"}}


@dataclass(slots=True)
class Watches:
    """What concerns all watches.

    `bookmarks`: seconds between bookmarks; `closed`: how often all were closed; `farewell`: what those are told that
    are closed now, None: nothing.
    """

    bookmarks: float = 60.0
    closed: int = 0
    farewell: StatusError | None = None

    def close(self, farewell: StatusError | None) -> None:
        """End the watches that there are, with this error or with none."""
        self.farewell = farewell
        self.closed += 1


class Watch:
    """Make it, then iterate. Raises StatusError (422, 500) when made, for parameters that cannot be read."""

    def __init__(self, objects: Objects, route: ApiRoute, chosen: ListSelector, watches: Watches) -> None:
        self._objects = objects
        self._route = route
        self._chosen = chosen
        self._watches = watches
        self._epoch = watches.closed
        self._initial = route.flag("sendInitialEvents")
        if self._initial and route.query.get("resourceVersionMatch") != "NotOlderThan":
            fault = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid_options("ListOptions", forbidden("resourceVersionMatch", fault))
        begin = _version(route.query.get("resourceVersion", ""))
        self._begin = None if self._initial else begin or None
        seconds = route.number("timeoutSeconds")
        self._seconds = seconds or random.uniform(1800, 3600)  # noqa: S311 - only spreads load
        self._bookmarks = route.flag("allowWatchBookmarks")

    def __iter__(self) -> Iterator[Json | None]:
        """Yield events; None now and then, when there is time to see whether anybody listens."""
        try:
            yield from self._events()
        except StatusError as refusal:
            yield {"type": "ERROR", "object": refusal.status()}

    def _events(self) -> Iterator[Json | None]:
        end = time.monotonic() + self._seconds
        version = self._begin
        if version is None:
            listed, version = self._objects.list(self._route.kind, self._route.namespace, self._chosen)
            yield from (self._event("ADDED", each) for each in listed)
            if self._initial and self._bookmarks:
                yield self._bookmark(version, _INITIAL_END)
        bookmark = self._next_bookmark(time.monotonic(), end)
        while True:
            now = time.monotonic()
            over = now >= end
            if now >= bookmark:
                yield self._bookmark(version, {})
                bookmark = self._next_bookmark(now, end)
            if over:
                return
            found, version = self._wait(version, max(0.0, min(_LOOK, end - now, bookmark - now)))
            yield from found
            if not found and self._watches.closed != self._epoch:
                if self._watches.farewell is not None:
                    raise self._watches.farewell
                return
            if not found:
                yield None

    def _next_bookmark(self, now: float, end: float) -> float:
        """The regular time, or shortly before the watch ends; never after that."""
        last = end - _LAST_BOOKMARK
        if not self._bookmarks or last <= now:
            return math.inf
        return min(now + self._watches.bookmarks, last)

    def _wait(self, version: int, seconds: float) -> tuple[list[Json], int]:
        objects = self._objects
        with objects.changed:
            idle = objects.history.version <= version and self._watches.closed == self._epoch
            if idle:
                objects.changed.wait(seconds)
            events = objects.history.after(version, self._route.kind)
            current = max(version, objects.history.version)
        seen = (self._seen(event) for event in events)
        return [each for each in seen if each is not None], current

    def _seen(self, event: StoredChange) -> Json | None:
        """The event as this watch sees it."""
        now = event.change != "DELETED" and self._meant(event.new)
        before = event.old is not None and self._meant(event.old)
        if now:
            return self._event("MODIFIED" if before else "ADDED", event.new)
        if not before:
            return None
        last = event.new if event.change == "DELETED" else event.old
        numbered = {**(last or {})}
        numbered["metadata"] = {**numbered["metadata"], "resourceVersion": str(event.version)}
        return self._event("DELETED", numbered)

    def _meant(self, resource: Object) -> bool:
        space = self._route.namespace
        here = not space or resource["metadata"].get("namespace") == space
        return here and self._chosen.matches(self._route.kind, resource)

    def _event(self, change: str, resource: Object) -> Json:
        return {"type": change, "object": outgoing(self._route, resource)}

    def _bookmark(self, version: int, extra: Json) -> Json:
        metadata = {"resourceVersion": str(version), **extra}
        kind = {"kind": self._route.kind.name, "apiVersion": self._route.api_version}
        return {"type": "BOOKMARK", "object": {**kind, "metadata": metadata}}


def _version(text: str) -> int:
    """The resource version in the query, 0 for none; raises StatusError (500) in the words of a server."""
    faults = ["invalid syntax"] if not _DIGITS.fullmatch(text) else []
    if not faults and len(text) > _DIGITS_MOST:
        faults.append("value out of range")
    for fault in faults:
        shown = text[:100]
        raise internal(f'resourceVersion: Invalid value: "{shown}": strconv.ParseUint: parsing "{shown}": {fault}')
    return int(text or "0")
