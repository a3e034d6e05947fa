"""Reads the kubelet often enough to keep the plugin door's holds up to date.

Level-triggered: a wake-up says how soon, never what happened, and a reading says everything. The kubelet's API serves
100 calls a second for all clients of the node together, and a reading takes two, so wakes are merged: readings are at
least ``ReadingPace.least`` apart, those after grants and file events ``ReadingPace.soon``, and each failure in a row
delays the next attempt longer. When nothing happens, the kubelet is read every ``ReadingPace.every``, or every
``ReadingPace.calm`` while no pod has a device: a pod can only get one by an Allocate or a new checkpoint, and both are
events.

A kubelet that is asked what pods have while it allocates a device may forget the allocation (1.36, kubernetes#137534)
and give the device to the next pod. So no reading begins just after the kubelet has called Allocate, nor at the moment
when a pod is bound, which is when the kubelet begins to allocate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.ledger.allocations import KubeletAllocations
from node.ledger.events import HoldsObserver, ReadingOutcome
from node.ledger.reader import KubeletReader, Reading
from node.values import Value, value

log = logging.getLogger("ostler.holds")

REMEMBERED = 32
"""Most faults remembered as reported."""


@value
class ReadingPace(Value):
    """The pace of readings, in seconds."""

    least: float = 0.2
    """Between any two readings."""
    soon: float = 1.0
    """Between readings after grants or changes of the kubelet's file."""
    settle: float = 0.3
    """Seconds from a grant to the reading: the kubelet records a device some milliseconds after Allocate has answered.
    """
    every: float = 10.0
    """Between readings when nothing happens."""
    calm: float = 30.0
    """The same while no pod has a device; half of ``TRUSTED``, so that a kubelet may restart without being unknown."""
    calm_after: float = 60.0
    """From the last reason to read until nothing counts as happening."""
    again: float = 1.0
    """The first wait after a failure; doubled each time, and cut by up to a quarter at random."""
    longest: float = 10.0
    """The longest wait after failures."""
    bound: float = 0.1
    """From news of a pod to the reading: the kubelet learns of its binding as early, and calls Allocate at once."""
    allocating: float = 0.05
    """From a call of Allocate to the next reading: far longer than the kubelet takes to record a device."""
    quiet: float = 600.0
    """How long a reported fault is not reported again."""


class HoldsLoop:
    """Reads the kubelet while ``run`` runs and publishes every ``Reading`` on ``bus``, complete or not.

    ``allocations``: enters the readings; while it has a grant that none has shown yet, the loop reads again. The reader
    must have the same clocks.
    """

    def __init__(
        self,
        reader: KubeletReader,
        allocations: KubeletAllocations,
        bus: EventBus,
        *,
        clocks: Clocks,
        events: EventRecorder,
        observer: HoldsObserver = HoldsObserver(),  # noqa: B008 - it has no state
        pace: ReadingPace = ReadingPace(),  # noqa: B008 - a frozen value
    ) -> None:
        self._reader = reader
        self._allocations = allocations
        self._bus = bus
        self._clock = clocks.monotonic
        self._random = clocks.random
        self._observer = observer
        self._pace = pace
        self._faults = ReadingFaults(events, pace.quiet)
        self._failures = 0
        self._unseen_readings = 0
        self._due = self._clock()
        self._not_before = self._due
        self._allocating_until = self._due
        self._stirred = self._due
        """When there was last a reason to read."""
        self._last = -1e9
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Read in a moment: a pod is gone, or has a device that a claim needs."""
        self._want(max(self._clock() + self._pace.bound, self._last + self._pace.least))

    def allocating(self) -> None:
        """Put readings off for a moment: the kubelet is allocating a device."""
        self._allocating_until = self._clock() + self._pace.allocating

    def soon(self) -> None:
        """Read in a moment: a device was granted, or the kubelet's file changed; many of these cause one reading."""
        self._unseen_readings = 0
        self._want(max(self._clock() + self._pace.settle, self._last + self._pace.soon))

    def read_by(self, when: float) -> None:
        """Read at this time (monotonic) at the latest: a reading made then proves more than an earlier one."""
        self._want(max(when, self._last + self._pace.least))

    def follow(self, pace: ReadingPace) -> None:
        """Change the pace; the next reading comes at the latest when the new pace demands it."""
        self._pace = pace
        self._want(self._last + pace.every)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self._woken.clear()
            left = self._next() - self._clock()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._woken.wait()
            else:
                await self._read()

    def _next(self) -> float:
        """When the next reading begins; constant calls of Allocate do not postpone it forever."""
        due = max(self._due, self._not_before)
        return max(due, min(self._allocating_until, due + self._pace.soon))

    def _want(self, due: float) -> None:
        self._stirred = self._clock()
        if due < self._due:
            self._due = due
            self._woken.set()

    async def _read(self) -> None:
        began = self._last = self._clock()
        due = self._due = began + self._pace.every
        reading = await self._reader.read()
        self._bus.publish(reading)
        now = self._clock()
        outcome = _outcome(reading)
        self._observer.read(outcome, now - began)
        self._faults.report(reading.faults, now)
        if reading.whole:
            self._failures, self._not_before = 0, now
            self._look_for_unseen(now)
            if self._due == due and self._is_calm(now):
                self._due = began + max(self._pace.every, self._pace.calm)
        else:
            self._back_off(now)

    def _is_calm(self, now: float) -> bool:
        return now - self._stirred >= self._pace.calm_after and not self._allocations.wanted()

    def _back_off(self, now: float) -> None:
        wait = min(self._pace.again * 2.0 ** min(self._failures, 16), self._pace.longest) * (1 - self._random() / 4)
        self._failures += 1
        self._not_before = now + wait
        self._want(now + wait)

    def _look_for_unseen(self, now: float) -> None:
        """Read again for a grant that no source shows yet, less often each time: its pod may have been refused."""
        if not self._allocations.unseen:
            self._unseen_readings = 0
            return
        self._want(now + self._pace.soon * 2.0 ** min(self._unseen_readings, 16))
        self._unseen_readings += 1


class ReadingFaults:
    """Reports a fault once, however often it occurs, and its end; both again only after ``quiet`` seconds."""

    def __init__(self, events: EventRecorder, quiet: float) -> None:
        self._events = events
        self._quiet = quiet
        self._reported_at: dict[str, float] = {}
        self._open = False

    def report(self, faults: tuple[str, ...], now: float) -> None:
        """Report the current faults."""
        self._reported_at = {text: at for text, at in self._reported_at.items() if now - at < self._quiet}
        for text in faults:
            if text not in self._reported_at and len(self._reported_at) < REMEMBERED:
                self._reported_at[text] = now
                self._open = True
                log.warning("cannot read all of the kubelet's device allocations", extra={"reason": text})
                self._events.emit(
                    EventType.WARNING, "KubeletUnreadable", f"cannot read the kubelet's device allocations: {text}"
                )
        if not faults and self._open:
            self._open = False
            log.info("the kubelet's device allocations can be read again")


def _outcome(reading: Reading) -> ReadingOutcome:
    if reading.whole:
        return ReadingOutcome.WHOLE
    parts = (reading.listed, reading.recorded, reading.allocatable)
    return ReadingOutcome.FAILED if all(part is None for part in parts) else ReadingOutcome.PARTIAL
