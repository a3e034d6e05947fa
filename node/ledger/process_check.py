"""Looks for left-over processes on devices that have become free, in a thread, and says what it finds.

One thread at a time: a driver that hangs keeps devices draining, and nothing else waiting. A device that was held again
before its look ended has a new order, and the old look says nothing of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from node.events import EventBus, EventSink, EventType
from node.health.telling import named
from node.inventory.live.passing import in_passing
from node.ledger.events import ReleasesAdvanced, ReleasesPending
from node.ledger.observer import HoldsObserver, Silent
from node.ledger.pending_release import Order, PendingRelease
from node.ledger.processes import ComputeProcesses, Process
from node.values import Value, value

log = logging.getLogger("ostler.holds")


@value
class _Finding(Value):
    order: Order
    processes: tuple[Process, ...] | None = None
    problem: str = ""


class ProcessCheck:
    """Makes the checks that ``draining`` orders while ``run`` runs, and publishes ``ReleasesAdvanced`` on ``bus``.

    ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        draining: PendingRelease,
        processes: ComputeProcesses,
        bus: EventBus,
        *,
        clock: Callable[[], float],
        events: EventSink,
        observer: HoldsObserver = Silent(),  # noqa: B008 - it has no state
    ) -> None:
        self._draining = draining
        self._processes = processes
        self._bus = bus
        self._clock = clock
        self._events = events
        self._observer = observer
        self._named: dict[str, tuple[int, tuple[Process, ...]]] = {}
        """The processes that were told of, and the number of the order that found them."""
        self._unseen: set[str] = set()
        """Devices of which it was told that nobody can tell their processes."""
        self._woken = asyncio.Event()
        bus.subscribe(ReleasesPending, lambda _: self._woken.set())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._woken.clear()
            due = self._draining.next_due()
            left = None if due is None else due - self._clock()
            if left is None or left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._woken.wait()
            else:
                await self._look(self._draining.due(self._clock()))

    async def _look(self, orders: tuple[Order, ...]) -> None:
        before = self._draining.wanted()
        findings = await in_passing(lambda: [self._found(order) for order in orders])
        for finding in findings:
            self._take(finding)
        self._tell_unseen({each.order.device.name for each in findings if not each.problem and each.processes is None})
        if self._draining.wanted() != before:
            self._bus.publish(ReleasesAdvanced())

    def _found(self, order: Order) -> _Finding:
        """In the thread."""
        try:
            return _Finding(order, self._processes.compute_processes(order.device))
        except OSError as error:
            return _Finding(order, problem=error.strerror or str(error))

    def _take(self, finding: _Finding) -> None:
        order, now = finding.order, self._clock()
        name = order.device.name
        if finding.problem:
            self._draining.failed(order, finding.problem, now)
            return
        left = self._draining.looked(order, finding.processes, now)
        self._observer.looked(len(left))
        number, before = self._named.pop(name, (order.number, ()))
        if number != order.number:
            # The device was free, or held, in between.
            before = ()
        if left:
            self._named[name] = order.number, left
        if left and left != before:
            whose = f"{name} is free, but still used by {self._draining.wanted()[name].holder}"
            fix = f"it is offered again when that has ended, or after 'ostler holds release {name}'"
            self._events.emit(EventType.WARNING, "DeviceDraining", f"{whose}; {fix}")
        elif before and not left and name not in self._draining.wanted():
            self._events.emit(EventType.NORMAL, "DeviceDrained", f"no process is left on {name}")

    def _tell_unseen(self, names: set[str]) -> None:
        untold = sorted(names - self._unseen)
        self._unseen.update(untold)
        if untold:
            about = {"devices": named(untold)}
            log.warning("left-over processes are not looked for: the driver tells of none", extra=about)
