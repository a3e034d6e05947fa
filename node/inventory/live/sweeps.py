"""Reads the health of all devices every few seconds, and soon after a hint, in a thread that lasts.

A reading may hang for as long as a device's firmware does. Then the thread is left behind, its function is skipped
until the thread comes back and ends, and another thread reads the others as before. The threads are daemons, so that
none keeps the process from ending. At most four of them are ever left behind, and as long as so many hang, nothing is
read.

Nearly all sweeps find what the one before has found. So the thread keeps its own time and sweeps ``AHEAD`` of the ticks
at which the loop wakes in any case, and the loop takes what it has found at the tick. It is woken only by what differs,
by what follows a hint, and by a sweep that is not done at the tick.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from node.clocks import SELDOM, is_ahead, until_ahead, until_tick
from node.events import EventBus
from node.health.kernel.links import Watched, watched
from node.health.signal import Condition
from node.inventory.live.function_files import FunctionFiles
from node.inventory.model import Snapshot
from node.rules import Rule
from node.tasks import Alarm
from node.values import Value, value

log = logging.getLogger("ostler.live")

SOON = 1.0
"""Least seconds between two sweeps after a hint."""
HANGS = 2.0
"""Seconds after which a sweep that is not done is left behind."""
_MOST_LEFT = 4
_LATE = 1.5
"""Intervals after which a sweep is late."""


@value
class Swept(Value):
    """What a sweep found, by the device's name; the sweep began at this time of the loop's clock."""

    began: float
    found: Mapping[str, tuple[Condition, ...]]


class Sweeps:
    """Publishes ``Swept`` on ``bus`` after every sweep.

    ``show`` sets the devices to read. ``hung``: functions whose reading hangs at the moment. All methods belong to the
    thread of the loop.
    """

    name = "sweeps"

    def __init__(
        self,
        files: FunctionFiles,
        bus: EventBus,
        *,
        interval: float = SELDOM,
        soon: float = SOON,
        hangs: float = HANGS,
    ) -> None:
        self._files = files
        self._bus = bus
        self._interval = interval
        self._soon = soon
        self._hangs = hangs
        self._shown: tuple[Snapshot, tuple[Rule, ...]] = (Snapshot(), ())
        self._is_hinted = False
        self._woken = Alarm()
        self._sweeper: _Sweeper | None = None
        self._left: list[_Sweeper] = []
        self.count = 0

    @property
    def hung(self) -> frozenset[str]:
        """Addresses of functions (or names of devices without one) that are left out because reading them hangs."""
        return frozenset(sweeper.at for sweeper in self._left if sweeper.running)

    @property
    def stopped(self) -> bool:
        """Whether so many readings hang that nothing is read."""
        return sum(sweeper.running for sweeper in self._left) >= _MOST_LEFT

    def show(self, snapshot: Snapshot, rules: tuple[Rule, ...]) -> None:
        """Read these devices from the next sweep on."""
        self._shown = snapshot, rules

    def hint(self) -> None:
        """Sweep soon: something may have changed."""
        self._is_hinted = True
        self._woken.set()

    async def run(self) -> None:
        """Sweep until cancelled; raises what a bug of a reading raises."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._woken.clear()
                await self._woken.wait_until(self._look(loop))
        finally:
            if self._sweeper is not None:
                self._sweeper.end()
                if self._sweeper.sweeping is not None:
                    self._left.append(self._sweeper)
                self._sweeper = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> float:
        """Take what was found, and do what is due; returns when to look again at the latest."""
        tick = loop.time() + until_tick(self._interval, loop.time())
        sweeper = self._sweeper or self._begun(loop)
        if sweeper is None:
            return tick
        since = sweeper.wake_after()
        self._take(sweeper)
        if since is not None:
            if loop.time() < since + self._hangs:
                return since + self._hangs
            self._leave(sweeper, since)
            return loop.time()
        # A thread whose wait does not end, such as one that follows a clock that was set back, is woken from here.
        is_late = loop.time() - sweeper.began > _LATE * self._interval > 0
        if not self._is_hinted and not is_late:
            return tick
        soonest = sweeper.began + self._soon
        if loop.time() < soonest:
            return min(soonest, tick)
        self._is_hinted = False
        sweeper.sweep()
        return loop.time() + self._hangs

    def _begun(self, loop: asyncio.AbstractEventLoop) -> _Sweeper | None:
        """A new thread, whose first sweep begins at once; None while too many hang."""
        self._left = [sweeper for sweeper in self._left if sweeper.running]
        if self.stopped:
            return None
        self._is_hinted = False
        self._sweeper = _Sweeper(
            self._files,
            lambda: self._shown,
            lambda: self.hung,
            self._woken.set,
            interval=self._interval,
            loop=loop,
        )
        return self._sweeper

    def _take(self, sweeper: _Sweeper) -> None:
        if sweeper.fault is not None:
            raise sweeper.fault
        while sweeper.done:
            self.count += 1
            self._bus.publish(sweeper.done.popleft())

    def _leave(self, sweeper: _Sweeper, since: float) -> None:
        """Leave a thread behind that hangs; what it has found until then counts."""
        sweeper.end()
        self._sweeper = None
        if sweeper.running:
            self._left.append(sweeper)
        log.warning("reading a device's state hangs; it is left out", extra={"device": sweeper.at})
        self.count += 1
        self._bus.publish(Swept(since, dict(sweeper.found)))


class _Sweeper:
    """A thread that looks at everything again and again; the first look begins at once.

    ``at`` is what is being read and ``found`` grows while it is ``sweeping``, since the time of the loop's clock; the
    results are in ``done``. ``fault``: what a reading raised, which ends the thread. ``wake`` is called on the loop.
    """

    def __init__(
        self,
        files: FunctionFiles,
        shown: Callable[[], tuple[Snapshot, tuple[Rule, ...]]],
        without: Callable[[], frozenset[str]],
        wake: Callable[[], None],
        *,
        interval: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._files = files
        self._shown = shown
        self._without = without
        self._interval = interval
        self._loop = loop
        self._wake = wake
        self._planned: tuple[Snapshot, tuple[Rule, ...]] | None = None
        self._plan: tuple[Watched, ...] = ()
        self._last: Mapping[str, tuple[Condition, ...]] | None = None
        self._is_asked = True
        self._is_over = False
        # A lock and not an event, which costs more each time that the wait for it ends. Only the loop releases it.
        self._bell = threading.Lock()
        self._bell.acquire()
        self.began = self._loop.time()
        self.sweeping: float | None = self.began
        self.at = ""
        self.found: dict[str, tuple[Condition, ...]] = {}
        self.done: deque[Swept] = deque()
        self.fault: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="sweeps", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def sweep(self) -> None:
        """Sweep now, and wake the loop afterwards."""
        self._is_asked = True
        self._ring()

    def wake_after(self) -> float | None:
        """When the sweep began that is under way, after which the loop is woken; None if its result is there."""
        if self.sweeping is not None:
            self._is_asked = True
        return self.sweeping

    def end(self) -> None:
        """End the thread, as soon as it does not hang; what it finds from now on is ignored."""
        self._is_over = True
        self._ring()

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    # In the thread:

    def _work(self) -> None:
        try:
            while not self._is_over:
                self._sweep()
                self._bell.acquire(timeout=until_ahead(self._interval, self._loop.time()))
        except Exception as error:  # noqa: BLE001 - raised by run, whose supervisor logs it
            self.fault = error
            self._wake_loop()

    def _sweep(self) -> None:
        began = self.began = self.sweeping = self._loop.time()
        found: dict[str, tuple[Condition, ...]] = {}
        self.found = found
        self._look(found)
        if self._is_over:
            return
        self.done.append(Swept(began, found))
        self.sweeping = None
        is_new, self._last = found != self._last, found
        # In this order: whoever asks for it after a result was missing finds that result, or is woken.
        is_asked, self._is_asked = self._is_asked, False
        if is_asked or is_new or not is_ahead(self._interval, self._loop.time()):
            self._wake_loop()

    def _look(self, found: dict[str, tuple[Condition, ...]]) -> None:
        shown, without = self._shown(), self._without()
        if self._planned is None or any(new is not old for new, old in zip(shown, self._planned, strict=True)):
            self._planned, self._plan = shown, watched(*shown)
        functions: dict[str, tuple[Condition, ...]] = {}
        for device in self._plan:
            key = device.address or device.device
            if key in without:
                continue
            self.at = key
            if key not in functions:
                functions[key] = self._files.function(device)
            troubles = self._files.troubles(device, functions[key])
            if self._is_over:
                return
            found[device.device] = troubles
        self._files.forget(frozenset(functions))

    def _wake_loop(self) -> None:
        # The loop may be closed already when a reading that hung ends; then nobody needs the news.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)
