"""The inventory loop: scans when woken or at an interval, and publishes what changed.

Level-triggered: a wake-up says that something may have changed, never what; every scan looks at everything. Sources
block (NVML does), so scans run in one worker thread, and nothing else ever runs there at the same time. Parts that need
devices read ``snapshot``, which is a plain value in memory. A scan that finds nothing new publishes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from node.clocks import Clocks
from node.events import EventBus
from node.inventory.diff import Diff, diff
from node.inventory.identity import IdentityStore
from node.inventory.model import Snapshot, SourceState, SourceStatus
from node.inventory.scan import Scanner
from node.inventory.source import ScanWanted, Source
from node.partitions import PartitionsRemoved
from node.quiesce import Quiesce
from node.topology.model import PlaceOverride
from node.values import Value, replace, value

log = logging.getLogger("ostler.inventory")

_CLOSE_WITHIN = 0.5
_LOGGED_LINES = 32


@value
class ScanDone(Value):
    """A scan ended, whether it found anything new or not: its seconds, and the status of each source."""

    seconds: float
    sources: tuple[SourceStatus, ...]


@value
class SnapshotPublished(Value):
    """A scan found something new, or was the first one."""

    snapshot: Snapshot
    changes: Diff


class InventoryStopped(Exception):
    """The inventory has stopped, so the requested scan will not run."""

    def __init__(self) -> None:
        super().__init__("the inventory has stopped; no scan will follow")


class Inventory:
    """Owns the sources and the current snapshot.

    Publishes ``ScanDone`` and ``SnapshotPublished`` on ``bus``, and is woken by ``ScanWanted``. ``max_interval`` and
    ``min_interval`` are seconds between the starts of two scans. ``first`` is set once the first scan was published.
    All methods belong to the thread of the event loop.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        identities: IdentityStore,
        bus: EventBus,
        *,
        clocks: Clocks,
        max_interval: float = 60.0,
        min_interval: float = 0.5,
        quiesce: Quiesce | None = None,
    ) -> None:
        self._scanner = Scanner(tuple(sources), identities, clocks, quiesce)
        self._bus = bus
        self.max_interval = max_interval
        self._min_interval = min_interval
        self._jitter = clocks.random
        self._snapshot = Snapshot()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inventory")
        self._woken = asyncio.Event()
        self._gpus: frozenset[str] | None = None
        """What to read again: the GPUs with these UUIDs, or everything (None)."""
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[Diff]] = []
        self._retries = 0
        self._stopped = False
        self._closed = False
        self._scanning: float | None = None
        self.first = asyncio.Event()
        bus.subscribe(ScanWanted, self._scan_wanted)

    @property
    def snapshot(self) -> Snapshot:
        """The last published snapshot; generation 0 before the first."""
        return self._snapshot

    def hangs(self, seconds: float) -> bool:
        """Whether the scan in progress has taken longer than that many seconds; on the loop."""
        return self._scanning is not None and asyncio.get_running_loop().time() - self._scanning > seconds

    def wake(self) -> None:
        """Ask for a scan: something may have changed.

        It begins at once, or ``min_interval`` after the last one began.
        """
        self._retries = 0
        self._gpus = None
        self._woken.set()

    def override(self, overrides: tuple[PlaceOverride, ...]) -> None:
        """Apply these place overrides from the next scan on, which begins soon."""
        self._scanner.override(overrides)
        self.wake()

    def removed(self, event: PartitionsRemoved) -> None:
        """Do not show these MIG devices as gone: they were removed on purpose."""
        self._scanner.forget(event.uuids)

    def _scan_wanted(self, _: ScanWanted) -> None:
        self.wake()

    @property
    def held(self) -> str:
        """Why a quiesced driver is still in use, according to the last scan; empty if it is free."""
        return self._scanner.held

    async def rescan(self, gpus: frozenset[str] = frozenset()) -> Diff:
        """Wait for a scan that begins after this call, and return what it found; several callers share one scan.

        ``gpus``: UUIDs of the only devices that the caller knows to have changed, so that the scan need not read others
        again; scans of everything are no later by it. It begins at once, or when the one under way has ended. Raises
        InventoryStopped.
        """
        if self._stopped:
            raise InventoryStopped
        waiting: asyncio.Future[Diff] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._asked.set()
        if not gpus:
            self.wake()
        elif self._gpus is not None:
            self._gpus |= gpus
        self._woken.set()
        return await waiting

    async def run(self) -> None:
        """Scan until cancelled."""
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[Diff]] = []
        due = -math.inf
        try:
            while True:
                started = loop.time()
                self._woken.clear()
                self._asked.clear()
                waiting, self._waiting = self._waiting, []
                gpus, self._gpus = self._gpus or frozenset(), frozenset()
                if started >= due:
                    gpus = frozenset()
                found = await self._scan(gpus)
                for future in waiting:
                    if not future.done():
                        future.set_result(found)
                if not gpus:
                    due = started + self._interval()
                await self._pause(due, started + self._min_interval)
        finally:
            self._waiting += waiting
            self._stop()

    async def close(self) -> None:
        """Close the sources, after the scan that is under way; call it when ``run`` has ended.

        A source that hangs is left behind after half a second. Its thread cannot be ended: Python waits for it at
        exit, so a process that must end then has to call ``os._exit``.
        """
        self._stop()
        if self._closed:
            return
        self._closed = True
        closing = asyncio.get_running_loop().run_in_executor(self._worker, self._scanner.close)
        try:
            await asyncio.wait_for(closing, _CLOSE_WITHIN)
        except TimeoutError:
            log.warning("a source hangs and could not be closed", extra={"source": self._scanner.reading})
        self._worker.shutdown(wait=False)

    def _stop(self) -> None:
        self._stopped = True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(InventoryStopped())

    async def _scan(self, gpus: frozenset[str]) -> Diff:
        old = self._snapshot
        loop = asyncio.get_running_loop()
        began = self._scanning = loop.time()
        reading = await loop.run_in_executor(self._worker, self._scanner.scan, old, gpus)
        self._scanning = None
        self._bus.publish(ScanDone(loop.time() - began, reading.sources))
        if self.first.is_set() and replace(reading, generation=old.generation) == old:
            return Diff()
        return self._publish(old, replace(reading, generation=old.generation + 1))

    def _publish(self, old: Snapshot, new: Snapshot) -> Diff:
        found = diff(old, new)
        self._snapshot = new
        log.info("scan published", extra={"generation": new.generation, "devices": len(new.devices)})
        lines = found.lines()
        for line in lines[:_LOGGED_LINES]:
            log.info("%s", line, extra={"generation": new.generation})
        if len(lines) > _LOGGED_LINES:
            log.info("and %d more changes", len(lines) - _LOGGED_LINES, extra={"generation": new.generation})
        self._bus.publish(SnapshotPublished(new, found))
        self.first.set()
        return found

    async def _pause(self, due: float, soonest: float) -> None:
        """Wait until the next scan is due: woken or at the interval, and too soon only if somebody waits for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._woken.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(soonest):
                await self._asked.wait()

    def _interval(self) -> float:
        """Seconds until the next scan without a wake-up: 1, 2, 4, ... while a source waits for its driver.

        Jittered downwards by up to a half, so that the nodes of a rollout do not all ask at once.
        """
        if all(status.state is not SourceState.WAITING for status in self._snapshot.sources):
            self._retries = 0
            return self.max_interval
        delay = min(2.0**self._retries, self.max_interval)
        # Bounded, because a float overflows at 2**1024 and an agent may wait for years.
        self._retries = min(self._retries + 1, 32)
        return delay * (0.5 + 0.5 * self._jitter())
