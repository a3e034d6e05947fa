"""The state of publishing: its status for people, which faults to report, and whether taints can be relied on.

**Faults.** One event per outage, not one per attempt. A failed request is retried and then usually works, so it is
reported only after ``PATIENCE`` or ``AWAY_PATIENCE``. Any other fault (a slice that breaks a rule, a field that the API
server dropped, credentials that cannot be read) needs a person to act, and is reported at once.

**Taints.** A server without the feature gate for taints drops them silently. The agent asks once by a dry run, but a
server can be upgraded or downgraded while it runs, and the servers of one cluster one after the other. So the stored
slices count as well: one dropped taint ends the reliance on all of them at once, and the server is asked again. If it
answers that it keeps taints (perhaps another server answered), taints are tried again after a while, at growing
intervals, and so is everything that was dropped: nobody else would notice that the server keeps it by now, since a
slice is written only when something in it changes. Once taints have been kept for long, the next loss counts as the
first again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kube.bodies import JsonObject
from kube.errors import RequestError, Unreachable
from node.clocks import Clocks
from node.events import EventRecorder, EventType
from node.values import Value, value

if TYPE_CHECKING:
    # At run time only the publisher's thread imports it, with the rules for objects that it needs.
    from driver.slices.model import DriverResources, PoolStatus, Stats

log = logging.getLogger("ostler.slices")

FAILED = "SlicesNotPublished"
WORKS_AGAIN = "SlicesPublished"
PATIENCE = 10.0
"""Seconds for which requests may fail before that is reported."""
AWAY_PATIENCE = 60.0
"""The same once the API server could not be reached.

A restart of the server is shorter, and so is the time over which agents come back after it (``kube.pace.Herd``):
otherwise each of them would post an event to the server that has just come back.
"""


Layout = tuple[tuple[str, ...], ...]
"""Names of devices by slice."""
ErrorHandler = Callable[[Exception, str], None]
"""Called in any thread with a fault and the work in which it arose."""


class SliceController(Protocol):
    """The part of ``driver.publishing.node_slices.NodeController`` that the publisher needs."""

    def start(self) -> object:
        """Begin to watch and to write."""

    def wait_synced(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the first list of slices; returns whether it came."""

    def update(self, resources: DriverResources | None, *, afresh: bool = False) -> None:
        """Replace the wanted slices; ``afresh``: send again what the server dropped before."""

    def stored(self, pool: str) -> Layout:
        """Names of devices by slice as they are in the API."""

    def free(self, pool: str) -> frozenset[str] | None:
        """Names of devices that a slice in the API offers to new claims; None while our writes may change that."""

    def status(self) -> tuple[PoolStatus, ...]:
        """The status of every pool."""

    def fault(self, pool: str) -> str:
        """Why the pool's last write or check failed, empty if it did not."""

    def watch_fault(self) -> str:
        """Why slices cannot be listed or watched at the moment, empty if they can."""

    def get_stats(self) -> Stats:
        """Writes that succeeded since the start."""

    def stop(self) -> None:
        """End, leaving the published slices."""


@value
class Publication(Value):
    """How far publishing has got, for people.

    ``generation``: of the snapshot that ``desired`` (devices by slice) was made from, 0 before the first. ``stored``:
    names of devices by slice in the API, as far as known. ``in_order``: the stored slices are the desired ones.
    ``dropped``: feature gates without which something was not stored. ``error``: the last fault, empty once everything
    works again. ``creates``, ``updates``, ``deletes``: writes since the start.
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
    """Remembers the last fault and whether it was reported; thread-safe."""

    def __init__(self, events: EventRecorder, clocks: Clocks) -> None:
        self._events = events
        self._monotonic = clocks.monotonic
        self._lock = threading.Lock()
        self._since: float | None = None
        self._patience = PATIENCE
        self._reported: set[str] = set()
        self.last = ""
        """The last fault in words, empty if there is none."""

    def note(self, error: Exception, work: str) -> None:
        """Note a fault in this work, which will be retried."""
        text = f"{work}: {error}"
        lasting = not isinstance(error, RequestError)
        with self._lock:
            self.last = text
            if isinstance(error, Unreachable):
                self._patience = AWAY_PATIENCE
            if self._since is None:
                self._since = self._monotonic()
            due = lasting and text not in self._reported
            if due:
                self._reported.add(text)
        log.info("slices", extra={"error": text})
        if due:
            self._events.emit(EventType.WARNING, FAILED, text)

    def wait(self, what: str) -> None:
        """Note that something has not come yet, which is a fault if it lasts."""
        with self._lock:
            self.last = what
            self._since = self._monotonic() if self._since is None else self._since

    def look(self, *, working: bool) -> None:
        """Report a fault that has lasted, or that publishing works again after a reported fault."""
        with self._lock:
            text, reported = self.last, bool(self._reported)
            if working:
                self.last, self._since, self._patience = "", None, PATIENCE
                self._reported.clear()
            due = (
                not working
                and not reported
                and self._since is not None
                and self._since + self._patience <= self._monotonic()
            )
            if due:
                self._reported.add(text)
        if working and reported:
            self._events.emit(EventType.NORMAL, WORKS_AGAIN, f"publishing works again (earlier error: {text})")
        elif due:
            self._events.emit(EventType.WARNING, FAILED, text)


AGAIN, RAREST = 60.0, 3600.0
"""Seconds until taints are tried again: at first, and at most. Kept that long, the next loss counts as the first."""


class DroppedTaints:
    """Whether taints can be relied on; used by one thread, except ``answered``."""

    def __init__(self, clocks: Clocks) -> None:
        self._monotonic = clocks.monotonic
        self._keeps: bool | None = None
        self._dropped = False
        self._distrusted = False
        self._tried = 0.0
        self._wait = AGAIN

    @property
    def withdraw(self) -> bool:
        """Whether a taint keeps new claims away from a device, as far as known."""
        return not self._distrusted and self._keeps is not False

    @property
    def unsure(self) -> bool:
        """Whether this must be checked again even if nothing changes."""
        return (self._dropped or self._distrusted) and self._keeps is not False

    def answered(self, keeps: bool | None) -> None:
        """Take the server's answer about taints; None: it has not answered. Safe to call from any thread."""
        if keeps is not self._keeps:
            # The answer has changed: try taints again at once.
            self._tried, self._wait = -math.inf, AGAIN
            self._keeps = keeps

    def seen(self, *, dropped: bool) -> bool:
        """Note whether the published slices lack a taint; returns whether the server has just dropped one."""
        before, self._dropped = self._dropped, dropped
        if not before and not self._distrusted and self._tried + RAREST <= self._monotonic():
            self._wait = AGAIN
        if dropped and not before:
            self._distrusted, self._tried = True, self._monotonic()
            return True
        if self._distrusted and not dropped and self._keeps and self._is_due():
            self._distrusted = False
            self._try()
        return False

    def sends_again(self) -> bool:
        """Whether it is time to try whether the server now keeps what it dropped."""
        return self._dropped and self._keeps is not False and self._is_due()

    def sent_again(self) -> None:
        """Note that it is being sent again."""
        self._dropped = False
        self._try()

    def _is_due(self) -> bool:
        return self._tried + self._wait <= self._monotonic()

    def _try(self) -> None:
        self._tried, self._wait = self._monotonic(), min(2 * self._wait, RAREST)
