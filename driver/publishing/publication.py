"""How publishing stands: its status for people, which faults are reported, and whether taints can be trusted.

**Faults.** One event per outage, not one per attempt. A request that fails is tried again and most often works then, so
it is reported only after ``PATIENCE``. Anything else (a slice that breaks a rule, a field that the API server dropped,
credentials that cannot be read) needs a person to act, and is reported at once.

**Taints.** A server without the gate for taints drops them without a word. The agent asks once by a dry run, but a
server can be upgraded or set back while it runs, and the servers of one cluster one after the other. So what comes back
of slices counts, too: a taint that was dropped ends the trust in all of them at once, and the server is asked again.
Where it answers that it keeps taints (another server's answer, perhaps) they are tried again after a while, ever more
rarely, and so is what was dropped: nobody else would notice that it is kept by now, since a slice is written only when
something in it changes. Once taints were kept for long, the next loss counts as a first one again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kube.bodies import JsonObject
from kube.errors import RequestError
from node.events import EventSink, EventType
from node.values import Value, value

if TYPE_CHECKING:
    # At run time only the publisher's thread imports it: it brings the rules for objects with it.
    from driver.slices.model import DriverResources, PoolStatus, Stats

log = logging.getLogger("ostler.slices")

FAILED = "SlicesNotPublished"
WORKS_AGAIN = "SlicesPublished"
PATIENCE = 10.0
"""Seconds that requests may fail before it is reported: a restart of the API server is shorter."""


Layout = tuple[tuple[str, ...], ...]
"""Names of devices by slice."""
ErrorHandler = Callable[[Exception, str], None]
"""Hears of a fault and in which work it arose, in any thread."""


class SliceController(Protocol):
    """What is needed of ``driver.publishing.node_slices.NodeController``."""

    def start(self) -> object:
        """Begin to watch and to write."""

    def wait_synced(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the first list of slices; whether it is there."""

    def update(self, resources: DriverResources | None, *, afresh: bool = False) -> None:
        """Replace what is wanted; ``afresh``: try again to have stored what the server dropped before."""

    def stored(self, pool: str) -> Layout:
        """Names of devices by slice as they are in the API."""

    def free(self, pool: str) -> frozenset[str] | None:
        """Names of devices that a slice in the API offers to new claims; None while that may change by our writes."""

    def status(self) -> tuple[PoolStatus, ...]:
        """How every pool stands."""

    def watch_fault(self) -> str:
        """Why slices cannot be listed or watched at the moment, empty where they can."""

    def get_stats(self) -> Stats:
        """Writes that succeeded since the start."""

    def stop(self) -> None:
        """End, and leave what is published."""


@value
class Publication(Value):
    """How far publishing is, for people.

    ``generation``: of the snapshot that ``desired`` (devices by slice) was made from, 0 before the first.
    ``stored``: names of devices by slice in the API, as far as it is known. ``in_order``: what is stored is what is
    desired. ``dropped``: feature gates without which something was not stored. ``error``: the last fault, empty once
    all went well again. ``creates``, ``updates``, ``deletes``: writes since the start.
    """

    pool: str
    generation: int = 0
    desired: tuple[tuple[JsonObject, ...], ...] = ()
    stored: Layout = ()
    in_order: bool = False
    dropped: tuple[str, ...] = ()
    error: str = ""
    creates: int = 0
    updates: int = 0
    deletes: int = 0


class PublishingFaults:
    """Remembers the last fault and whether it was reported; for any thread."""

    def __init__(self, events: EventSink, monotonic: Callable[[], float]) -> None:
        self._events = events
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told: set[str] = set()
        self.last = ""
        """The last fault in words, empty when all is well."""

    def tell(self, error: Exception, work: str) -> None:
        """A fault has arisen in this work; it will be tried again."""
        text = f"{work}: {error}"
        lasting = not isinstance(error, RequestError)
        with self._lock:
            self.last = text
            if self._since is None:
                self._since = self._monotonic()
            due = lasting and text not in self._told
            if due:
                self._told.add(text)
        log.info("slices", extra={"error": text})
        if due:
            self._events.emit(EventType.WARNING, FAILED, text)

    def wait(self, what: str) -> None:
        """Something has not come yet, which is a fault when it lasts."""
        with self._lock:
            self.last = what
            self._since = self._monotonic() if self._since is None else self._since

    def look(self, *, working: bool) -> None:
        """Report a fault that has lasted, or that publishing works again after a reported fault."""
        with self._lock:
            text, told = self.last, bool(self._told)
            if working:
                self.last, self._since = "", None
                self._told.clear()
            due = not working and not told and self._since is not None and self._since + PATIENCE <= self._monotonic()
            if due:
                self._told.add(text)
        if working and told:
            self._events.emit(EventType.NORMAL, WORKS_AGAIN, f"publishing works again (earlier error: {text})")
        elif due:
            self._events.emit(EventType.WARNING, FAILED, text)


AGAIN, RAREST = 60.0, 3600.0
"""Seconds after which taints are tried again, the first time and at most; kept for the latter, it is the first time."""


class DroppedTaints:
    """Written by one thread, but for ``answered``; ``on_dropped`` is called, in it, when the server drops a taint."""

    def __init__(self, monotonic: Callable[[], float], on_dropped: Callable[[], None]) -> None:
        self._monotonic = monotonic
        self._on_dropped = on_dropped
        self._keeps: bool | None = None
        self._dropped = False
        self._distrusted = False
        self._tried = 0.0
        self._wait = AGAIN

    @property
    def withdraw(self) -> bool:
        """Whether a taint keeps new claims away from a device, as far as is known."""
        return not self._distrusted and self._keeps is not False

    @property
    def unsure(self) -> bool:
        """Whether this has to be looked at again without news."""
        return (self._dropped or self._distrusted) and self._keeps is not False

    def answered(self, keeps: bool | None) -> None:
        """What the server said it does with taints; None: it has not said. From any thread."""
        if keeps is not self._keeps:
            # It is another one now: they are tried again at once.
            self._tried, self._wait = -math.inf, AGAIN
            self._keeps = keeps

    def seen(self, *, dropped: bool) -> None:
        """Whether what is published lacks a taint."""
        before, self._dropped = self._dropped, dropped
        if not before and not self._distrusted and self._tried + RAREST <= self._monotonic():
            self._wait = AGAIN
        if dropped and not before:
            self._distrusted, self._tried = True, self._monotonic()
            self._on_dropped()
        elif self._distrusted and not dropped and self._keeps and self._is_due():
            self._distrusted = False
            self._try()

    def sends_again(self) -> bool:
        """Whether it is time to try whether the server keeps by now what it dropped."""
        return self._dropped and self._keeps is not False and self._is_due()

    def sent_again(self) -> None:
        """It is sent again now."""
        self._dropped = False
        self._try()

    def _is_due(self) -> bool:
        return self._tried + self._wait <= self._monotonic()

    def _try(self) -> None:
        self._tried, self._wait = self._monotonic(), min(2 * self._wait, RAREST)
