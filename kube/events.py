"""Posts events about an object in the background; ``kubectl describe`` shows them at its end.

Invariants: ``offer`` never blocks and never fails. The queue is bounded; when it is full, the oldest event is dropped
and counted. A repeated event does not make a new object: while it waits, the poster adds it to the waiting one, and
once posted, it patches the object's count. However fast events come, the API server gets at most ``EventLimits.burst``
and then one each ``EventLimits.interval``. An outage costs only what does not fit into the queue. Events are posted at
least once: after a lost answer the poster uses the same name again, so that the server refuses the second one.

Events have the old core/v1 fields (count, firstTimestamp, lastTimestamp) and no eventTime: then the server applies its
rules for old events, and every client shows them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, path_of
from kube.errors import BadRequest, Invalid, KubeError, NotFound, RequestError, WriteConflict

log = logging.getLogger("ostler.kube")

MAX_MESSAGE = 1024
MAX_REASON = 128
"""Characters that the API server accepts in an event with eventTime; kubelets and controllers keep to them as well."""
_MAX_NAME = 253
_Key = tuple["Subject", str, str, str]


class EventClient(Protocol):
    """What the poster needs of a client."""

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create an object in a collection."""

    def patch(self, path: str, body: Json) -> JsonObject:
        """Merge into an object."""


class PostingObserver(Protocol):
    """Counts for metrics; called from several threads, but never twice at once for the same method."""

    def posted(self, events: int) -> None:
        """The API server has accepted that many more."""

    def dropped(self, events: int) -> None:
        """Count events that were dropped: too many waited, or the API server refused them."""

    def failed(self) -> None:
        """An attempt to post failed."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that events are about. ``namespace``: that of the events, ``default`` for cluster-wide objects."""

    kind: str
    name: str
    uid: str
    api_version: str = "v1"
    namespace: str = "default"
    is_namespaced: bool = False

    @classmethod
    def node(cls, name: str) -> Subject:
        """A Node, with its *name* as uid.

        The kubelet does the same. ``kubectl describe node`` searches by the object's uid and by its name as uid, so it
        shows both; the name needs no request, and stays valid when the Node is created again. ``involvedObject`` then
        has no namespace, as that search expects.
        """
        return cls("Node", name, name)


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Limits of posting. ``waiting``: most different events in the queue. ``burst``, ``interval`` (seconds): see the
    module.

    ``remembered``: posted events whose objects are patched when they happen again.
    """

    waiting: int = 100
    burst: int = 25
    interval: float = 10.0
    remembered: int = 256


@dataclass(slots=True)
class _Pending:
    """Occurrences not posted yet: how many, and when (Unix seconds). ``name`` is set once posting was attempted."""

    count: int
    first: float
    last: float
    name: str = ""


@dataclass(slots=True)
class _Posted:
    name: str
    count: int


class _Bucket:
    """A token bucket: ``size`` tokens at first, one more each ``interval`` seconds."""

    def __init__(self, size: int, interval: float, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._interval = interval
        self._monotonic = monotonic
        self._level = float(size)
        self._at = monotonic()

    def missing(self) -> float:
        """Seconds until there is a token."""
        now = self._monotonic()
        self._level = min(self._size, self._level + (now - self._at) / self._interval)
        self._at = now
        return max(0.0, (1.0 - self._level) * self._interval)

    def take(self) -> None:
        """Use one token."""
        self._level -= 1.0


class EventPoster:
    """Posts events on ``subject``, or on the object that an offer names.

    ``run`` is the body of a thread, everything else is for any thread.

    ``component`` and ``instance`` name the reporter. ``failing``: why the last attempt failed, empty after a success.
    """

    def __init__(
        self,
        subject: Subject,
        observer: PostingObserver,
        *,
        component: str,
        instance: str,
        random: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        unique: Callable[[], str] = lambda: os.urandom(8).hex(),
        limits: EventLimits = EventLimits(),
        policy: BackoffPolicy = BackoffPolicy(first=1.0, most=60.0),  # noqa: B008 - frozen
    ) -> None:
        self._subject = subject
        self._observer = observer
        self._component = component
        self._instance = instance
        self._unique = unique
        self._limits = limits
        self._bucket = _Bucket(limits.burst, limits.interval, monotonic)
        self._backoff = Backoff(policy, random)
        self._changed = threading.Condition()
        self._waiting: OrderedDict[_Key, _Pending] = OrderedDict()
        self._known: OrderedDict[_Key, _Posted] = OrderedDict()
        self._closed = False
        self.failing = ""

    def offer(self, kind: str, reason: str, message: str, at: float, subject: Subject | None = None) -> None:
        """Post an event: ``kind`` is Normal or Warning, ``at`` Unix seconds."""
        key = (subject or self._subject, kind, reason[:MAX_REASON], _clipped(message))
        with self._changed:
            self._put(key, _Pending(1, at, at))
            self._changed.notify_all()

    def close(self) -> None:
        """Make ``run`` return; waiting events are not posted."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def run(self, client: EventClient) -> None:
        """Post until closed."""
        while (taken := self._next()) is not None:
            key, pending = taken
            try:
                self._post(client, key, pending)
            except KubeError as error:
                self._failed(key, pending, error)
            else:
                self._backoff.reset()
                self.failing = ""
                self._observer.posted(pending.count)

    def _put(self, key: _Key, pending: _Pending, *, oldest: bool = False) -> None:
        """Queue an event, or add it to the same event that waits already."""
        same = self._waiting.get(key)
        if same is not None:
            same.count += pending.count
            same.first, same.last = min(same.first, pending.first), max(same.last, pending.last)
            same.name = same.name or pending.name
            if oldest:
                self._waiting.move_to_end(key, last=False)
            return
        if len(self._waiting) >= self._limits.waiting:
            lost = pending if oldest else self._waiting.popitem(last=False)[1]
            self._observer.dropped(lost.count)
            if lost is pending:
                return
        self._waiting[key] = pending
        if oldest:
            self._waiting.move_to_end(key, last=False)

    def _next(self) -> tuple[_Key, _Pending] | None:
        """The oldest event, once it may be posted; None when closed."""
        with self._changed:
            while not self._closed:
                if not self._waiting:
                    self._changed.wait()
                elif (missing := self._bucket.missing()) > 0:
                    # While it waits, the same event again is added to it.
                    self._changed.wait(missing)
                else:
                    self._bucket.take()
                    return self._waiting.popitem(last=False)
            return None

    def _post(self, client: EventClient, key: _Key, pending: _Pending) -> None:
        known = self._known.get(key)
        if known is not None:
            count = known.count + pending.count
            try:
                client.patch(_path(key[0], known.name), _times(count, pending.last))
            except NotFound:
                # Events live for an hour, unless they are patched.
                del self._known[key]
            else:
                known.count = count
                self._known.move_to_end(key)
                return
        pending.name = pending.name or self._name(key[0])
        try:
            client.create(_path(key[0]), self._body(key, pending))
        except WriteConflict as error:
            # The answer of an earlier attempt was lost on its way.
            if not error.already_exists:
                raise
            client.patch(_path(key[0], pending.name), _times(pending.count, pending.last))
        self._known[key] = _Posted(pending.name, pending.count)
        if len(self._known) > self._limits.remembered:
            self._known.popitem(last=False)

    def _failed(self, key: _Key, pending: _Pending, error: KubeError) -> None:
        if self._closed:
            return
        self._observer.failed()
        if str(error) != self.failing:
            log.warning("an event cannot be posted", extra={"reason": key[2], "error": str(error)})
            self.failing = str(error)
        with self._changed:
            if isinstance(error, (BadRequest, Invalid, NotFound)):
                # It would be refused for ever, and block all others.
                self._observer.dropped(pending.count)
                return
            self._put(key, pending, oldest=True)
            wait = self._backoff.delay(error.retry_after if isinstance(error, RequestError) else None)
            self._changed.wait_for(lambda: self._closed, wait)

    def _name(self, subject: Subject) -> str:
        unique = self._unique()
        # The name must be a DNS subdomain of at most 253 characters, even if it is cut.
        return f"{subject.name[: _MAX_NAME - len(unique) - 1].rstrip('-.')}.{unique}"

    def _body(self, key: _Key, pending: _Pending) -> JsonObject:
        subject, kind, reason, message = key
        involved: JsonObject = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "uid": subject.uid,
        }
        if subject.is_namespaced:
            involved["namespace"] = subject.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": pending.name, "namespace": subject.namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message,
            "count": pending.count,
            "firstTimestamp": _time(pending.first),
            "lastTimestamp": _time(pending.last),
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _path(subject: Subject, *name: str) -> str:
    return path_of("api", "v1", "namespaces", subject.namespace, "events", *name)


def _clipped(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"


def _times(count: int, last: float) -> JsonObject:
    return {"count": count, "lastTimestamp": _time(last)}


def _time(at: float) -> str:
    """RFC 3339 in whole seconds, which is what these fields hold."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
