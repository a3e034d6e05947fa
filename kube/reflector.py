"""A thread that keeps a handler informed about a collection: list, then watch, for ever.

Invariants: one thread at a time calls the handler, and never after ``stop`` has returned. The handler gets ``replaced``
first, and again whenever changes may have been missed; between two of these it gets every change in order. The
reflector notices a connection whose other side vanished: by keepalive after a minute, by silence a little after the
time the server had for the watch. If the handler fails, the reflector reports it and lists again, because it does not
know how far the handler came.

``kube.pace`` says when it asks again after a watch or a list has ended.

An object that cannot be read (``kube.answers.Unread``) ends neither list nor watch. If it is in a list, new or deleted,
the handler gets its metadata alone, so that it does not look gone; a change of it is skipped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from kube.answers import Unread
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject, object_at, one_line, text_at
from kube.collection import INITIAL_END, PAGE, CollectionSource, Events, read_whole
from kube.errors import (
    BadAnswer,
    BadRequest,
    Closed,
    Invalid,
    KubeError,
    NotFound,
    RequestError,
    refusal,
)
from kube.pace import ALONE, Herd, NextRequest, WatchPace

log = logging.getLogger("ostler.kube")

POLICY = BackoffPolicy(first=0.8, most=30.0)
_MESSAGE = 1024
_WARNED = 20
"""Most unreadable objects that the log names; more have the same cause."""
_EARLY = 2.0
"""Seconds by which a watch may end before its time without a reason that other nodes have as well."""


class Handler(Protocol):
    """Receives objects as ``CollectionSource.read`` returns them, and must not change them."""

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        """Take the complete list; every other known object is gone."""

    def applied(self, body: JsonObject) -> None:
        """This object is new or has changed."""

    def deleted(self, body: JsonObject) -> None:
        """This object is gone; ``body`` is its last state."""

    def bookmark(self, resource_version: str) -> None:
        """Every change up to this version has been delivered."""


@dataclass(frozen=True, slots=True)
class ReflectorLimits:
    """Limits in seconds. ``watch``: the server ends each watch after a random time between these two.

    ``slack``: how much later the reflector ends it itself. ``settled``: a watch that lived this long has worked.
    ``herd``: how many others lose their watches at the same moment. ``streams_lists``: have a watch begin with the
    list, which saves a request.
    """

    watch: tuple[float, float] = (300.0, 600.0)
    slack: float = 15.0
    settled: float = 5.0
    page_size: int = PAGE
    herd: Herd = ALONE
    streams_lists: bool = False


@dataclass(frozen=True, slots=True)
class ReflectorStatus:
    """The reflector's state. ``lists``, ``watches`` (attempts of each), ``events`` and ``failures`` only grow.

    ``running``: neither ``stop`` nor its client's ``close`` has ended it. ``failing``: why the last attempt failed,
    empty after a success.
    """

    running: bool = False
    synced: bool = False
    watching: bool = False
    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0
    failing: str = ""


class HandlerFailed(Exception):
    """The handler raised; its exception is the cause."""


class _Stopped(Exception):
    """``stop`` was called."""


class Reflector:
    """Informs ``handler`` about a ``source``, from ``start`` to ``stop``; it cannot be started again.

    ``random`` returns numbers in [0, 1). ``on_failure`` is called after every failure, in the reflector's thread: with
    a ``KubeError``, ``HandlerFailed``, or the exception of a mistake of ours. ``synced`` is set once the handler has
    its first list.
    """

    def __init__(
        self,
        source: CollectionSource,
        handler: Handler,
        *,
        random: Callable[[], float],
        policy: BackoffPolicy = POLICY,
        limits: ReflectorLimits = ReflectorLimits(),
        on_failure: Callable[[Exception], None] = lambda _: None,
        name: str = "",
    ) -> None:
        self.synced = threading.Event()
        self._source = source
        self._handler = handler
        self._random = random
        self._limits = limits
        self._streams_lists = limits.streams_lists
        self._on_failure = on_failure
        self._pace = WatchPace(policy, random, limits.settled, limits.herd)
        self._stopped = threading.Event()
        # Reentrant: a handler may stop its reflector.
        self._delivering = threading.RLock()
        self._stream: Events | None = None
        self._watch_began: float | None = None
        self._lasts = 0
        """Seconds for which the last watch was asked to last."""
        self._heard = False
        self._version = ""
        self._lists = self._watches = self._events = self._failures = 0
        self._failing = self._logged = ""
        self._unread: set[str] = set()
        # A daemon: a pending request must not delay the end of the process.
        self._thread = threading.Thread(target=self._run, name=name or f"reflector {source.path}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> bool:
        """End the watch and the waits, and wait for the thread; returns whether it ended within ``seconds``.

        A list under way ends by the client's limits, or by its ``close``; the handler does not get it.
        """
        self._stopped.set()
        if (stream := self._stream) is not None:
            stream.close()
        with self._delivering:
            pass
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def status(self) -> ReflectorStatus:
        """The state, from any thread."""
        return ReflectorStatus(
            running=self._thread.is_alive(),
            synced=self.synced.is_set(),
            watching=self._watch_began is not None,
            lists=self._lists,
            watches=self._watches,
            events=self._events,
            failures=self._failures,
            failing=self._failing,
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            fault: Exception | None = None
            try:
                self._turn()
            except (_Stopped, Closed):
                break
            except Exception as error:  # noqa: BLE001 - reported, logged and in the status; then everything is read again
                fault = error
            lived = 0.0 if self._watch_began is None else time.monotonic() - self._watch_began
            self._watch_began = None
            following = self._pace.after(fault, lived, heard=self._heard, early=lived < self._lasts - _EARLY)
            if following.list_first:
                self._version = ""
            self._report(fault, following)
            self._stopped.wait(following.wait)
        self._watch_began = None

    def _turn(self) -> None:
        """Do one list, if needed, and one watch, to its end."""
        if not self._version and self._streams_lists:
            try:
                self._watch()
            except (BadRequest, Invalid, NotFound):
                # The server's feature gate WatchList is off, or it serves another version by now.
                self._streams_lists = False
            else:
                return
        if not self._version:
            self._list()
        self._watch()

    def _watch(self) -> None:
        """Do one watch, which begins with the list if there is no version to begin from."""
        low, high = self._limits.watch
        seconds = low + (high - low) * self._random()
        self._watches += 1
        self._lasts = max(1, int(seconds))
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(self._lasts),
        }
        lists = not self._version
        if lists:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        most = seconds + self._limits.slack
        with self._source.watch(query, read_timeout=most, whole=most) as stream:
            self._stream = stream
            try:
                if self._stopped.is_set():
                    raise _Stopped
                stream.open()
                if lists:
                    self._take_list(stream)
                self._watch_began = time.monotonic()
                self._heard = False
                self._failing = ""
                for event in stream:
                    self._take(event)
            finally:
                self._stream = None
        if self._stopped.is_set():
            raise _Stopped

    def _list(self) -> None:
        self._lists += 1
        listing = read_whole(self._source, self._limits.page_size)
        if not listing.resource_version:
            raise self._bad("the list has no resourceVersion, so it has no watch")
        self._warn(listing.unread)
        known = (*listing.objects, *(self._source.read({"metadata": each.metadata}) for each in listing.unread))
        self._replace(known, listing.resource_version)

    def _take_list(self, stream: Events) -> None:
        """Take the list with which a watch begins; a bookmark of its own ends it."""
        self._lists += 1
        known: dict[tuple[str, str], JsonObject] = {}
        for event in stream:
            if isinstance(event, Unread):
                self._warn((event,))
                change, body = event.change, object_at({"metadata": event.metadata})
            else:
                change, body = text_at(event, "type"), object_at(event, "object")
            if change == "ERROR":
                raise self._error(body)
            if change == "BOOKMARK":
                if text_at(body, "metadata", "annotations", INITIAL_END) != "true":
                    self._streams_lists = False
                    raise self._bad("the watch does not begin with the list that was asked for")
                self._replace(tuple(known.values()), text_at(body, "metadata", "resourceVersion"))
                return
            key = text_at(body, "metadata", "namespace"), text_at(body, "metadata", "name")
            if change == "DELETED":
                known.pop(key, None)
            else:
                known[key] = self._source.read(body)
        if not self._stopped.is_set():
            raise self._bad("the watch ended before its list did")

    def _replace(self, known: Sequence[JsonObject], version: str) -> None:
        with self._delivery():
            self._handler.replaced(known, version)
        self._version = version
        self.synced.set()

    def _take(self, event: JsonObject | Unread) -> None:
        """Pass one event of the watch to the handler; raises the error of an ERROR event."""
        if isinstance(event, Unread):
            self._warn((event,))
            shown = "BOOKMARK" if event.change == "MODIFIED" else event.change
            event = {"type": shown, "object": {"metadata": event.metadata}}
        kind, body = event.get("type"), object_at(event, "object")
        if kind == "ERROR":
            raise self._error(body)
        version = text_at(body, "metadata", "resourceVersion")
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK") or not version:
            word = one_line(str(kind), 32)
            raise self._bad(f"the watch sent an event of unknown form, type {word!r}")
        if kind == "BOOKMARK":
            with self._delivery():
                self._handler.bookmark(version)
        else:
            known = self._source.read(body)
            with self._delivery():
                if kind == "DELETED":
                    self._handler.deleted(known)
                else:
                    self._handler.applied(known)
            self._events += 1
        self._version = version
        self._heard = True

    def _warn(self, unread: Sequence[Unread]) -> None:
        for text in map(str, unread):
            if text not in self._unread and len(self._unread) < _WARNED:
                self._unread.add(text)
                log.warning("an object cannot be read", extra={"list": self._source.path, "object": text})

    def _bad(self, problem: str) -> BadAnswer:
        return BadAnswer("GET", self._source.path, 200, "", problem)

    def _error(self, status: JsonObject) -> RequestError:
        code, after = status.get("code"), object_at(status, "details").get("retryAfterSeconds")
        number = code if isinstance(code, int) else 0
        reason, message = (one_line(text_at(status, key), _MESSAGE) for key in ("reason", "message"))
        # The field has 32 bits; a larger number does not come from an API server, and a float may not hold it.
        seconds = float(min(after, 1 << 31)) if isinstance(after, int) and after > 0 else None
        return refusal("GET", self._source.path, number, reason, message or "no reason given", retry_after=seconds)

    @contextmanager
    def _delivery(self) -> Iterator[None]:
        """Call the handler inside, unless the reflector was stopped; its exceptions become ``HandlerFailed``."""
        with self._delivering:
            if self._stopped.is_set():
                raise _Stopped
            try:
                yield
            except Exception as error:
                raise HandlerFailed(f"the handler failed: {type(error).__name__}: {error}") from error

    def _report(self, fault: Exception | None, following: NextRequest) -> None:
        if self._stopped.is_set():
            return
        if fault is None and not following.wait:
            self._logged = ""
            return
        self._failures += 1
        text = f"GET {self._source.path}: the server ended the watch before its time" if fault is None else str(fault)
        self._failing = text
        if text != self._logged:
            self._logged = text
            log.warning("a watch failed", extra={"error": text}, exc_info=fault if _is_ours(fault) else None)
        if fault is not None:
            self._notify(fault)

    def _notify(self, fault: Exception) -> None:
        try:
            self._on_failure(fault)
        except Exception:
            # A failing callback must not end the reflector; the log has both.
            log.exception("the report of a failed watch failed")


def _is_ours(fault: Exception | None) -> bool:
    """Whether a fault is a mistake in this process, so that the log needs its traceback."""
    return fault is not None and not isinstance(fault, KubeError)
