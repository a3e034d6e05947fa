"""Reads the health of all devices every few seconds, and soon after a hint, each time in a thread of its own.

A reading may hang for as long as a device's firmware does. Then the thread is left behind, its function is skipped
until the thread comes back, and the others are read as before. The threads are daemons, so that none keeps the process
from ending. At most four of them are ever left behind, and as long as so many hang, nothing is read. A new thread for
each sweep keeps no memory in between (a waiting thread costs 0.2 MB).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress

from node.clocks import SELDOM, until_tick
from node.events import EventBus
from node.health.kernel.links import Watched, watched
from node.health.signal import Condition
from node.inventory.live.function_files import FunctionFiles
from node.inventory.model import Snapshot
from node.rules import Rule
from node.values import Value, value

log = logging.getLogger("ostler.live")

SOON = 1.0
"""Least seconds between two sweeps after a hint."""
HANGS = 2.0
"""Seconds after which a sweep that is not done is left behind."""
_MOST_LEFT = 4


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
        self._planned: tuple[Snapshot, tuple[Rule, ...]] | None = None
        self._plan: tuple[Watched, ...] = ()
        self._hinted = asyncio.Event()
        self._left: list[_Sweep] = []
        self.count = 0

    @property
    def hung(self) -> frozenset[str]:
        """Addresses of functions (or names of devices without one) that are left out because reading them hangs."""
        return frozenset(sweep.at for sweep in self._left if sweep.running)

    @property
    def stopped(self) -> bool:
        """Whether so many readings hang that nothing is read."""
        return sum(sweep.running for sweep in self._left) >= _MOST_LEFT

    def show(self, snapshot: Snapshot, rules: tuple[Rule, ...]) -> None:
        """Read these devices from the next sweep on."""
        self._shown = snapshot, rules

    def hint(self) -> None:
        """Sweep soon: something may have changed."""
        self._hinted.set()

    async def run(self) -> None:
        """Sweep until cancelled; raises what a bug of a reading raises."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._hinted.clear()
            await self._sweep()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(began + until_tick(self._interval, began)):
                    await self._hinted.wait()
            await asyncio.sleep(max(began + self._soon - loop.time(), 0.0))

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._left = [sweep for sweep in self._left if sweep.running]
        if self.stopped:
            return
        if self._planned is None or any(new is not old for new, old in zip(self._shown, self._planned, strict=True)):
            self._planned, self._plan = self._shown, watched(*self._shown)
        began = loop.time()
        sweep = _Sweep(self._files, self._plan, self.hung, loop)
        try:
            async with asyncio.timeout(self._hangs):
                await sweep.done
        except TimeoutError:
            sweep.abandon()
            if sweep.running:
                self._left.append(sweep)
            log.warning("reading a device's state hangs; it is left out", extra={"device": sweep.at})
            self._hinted.set()
        self.count += 1
        self._bus.publish(Swept(began, dict(sweep.found)))


class _Sweep:
    """One look at everything, in a thread: ``at`` is what is being read, ``found`` grows until ``done``."""

    def __init__(
        self,
        files: FunctionFiles,
        plan: tuple[Watched, ...],
        without: frozenset[str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._files = files
        self._plan = plan
        self._without = without
        self._loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.found: dict[str, tuple[Condition, ...]] = {}
        self.at = ""
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="sweep", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def abandon(self) -> None:
        """Ignore what it finds from now on."""
        self._abandoned = True

    def _work(self) -> None:
        error: Exception | None = None
        try:
            self._look()
        except Exception as caught:  # noqa: BLE001 - raised by run, whose supervisor logs it
            error = caught
        # The loop may be closed already when a reading that hung ends; then nobody needs the news.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, error)

    def _look(self) -> None:
        functions: dict[str, tuple[Condition, ...]] = {}
        for device in self._plan:
            key = device.address or device.device
            if key in self._without:
                continue
            self.at = key
            if key not in functions:
                functions[key] = self._files.function(device)
            troubles = self._files.troubles(device, functions[key])
            if self._abandoned:
                return
            self.found[device.device] = troubles
        self._files.forget(frozenset(functions))

    def _end(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
