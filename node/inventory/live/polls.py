"""Compares signatures continuously, in a thread of its own.

A thread and not the loop, because a reading may hang for as long as a device's firmware does; its own and not the pool
of the loop, because handing over each time costs more than the readings. It is a daemon thread: a reading that hangs
must not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

from node.clocks import until_tick
from node.events import EventBus
from node.inventory.live.signatures import Signature
from node.metrics import Counter
from node.values import Value, value

INTERVAL = 0.9
"""Seconds between readings, at its ticks: a change is in a snapshot within a second, for some 0.04 % of a core."""
STALLED = 10.0
"""Seconds after which a reading counts as hanging."""


@value
class PolledChange(Value):
    """A signature differs from the one before."""


class Polls:
    """Publishes ``PolledChange`` on ``bus``, on the loop.

    ``always`` are read each time; ``sometimes`` pairs a signature with whether it is needed at the moment. ``news``
    changes when hardware has come or gone; None if no source reports that.
    """

    name = "polls"

    def __init__(
        self,
        bus: EventBus,
        always: Sequence[Signature],
        sometimes: Sequence[tuple[Callable[[], bool], Signature]] = (),
        *,
        news: Callable[[], Hashable] = lambda: None,
        interval: float = INTERVAL,
    ) -> None:
        self._bus = bus
        self._news = news
        self._heard: Hashable = None
        self._always = tuple(always)
        self._sometimes = tuple(sometimes)
        self._interval = interval
        self._last: list[Hashable] = []
        self._reading_since: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.changes = Counter("ostler_polled_changes", "Changes found by polling what causes no event.")
        self.count = 0

    @property
    def stalled(self) -> bool:
        """Whether a reading has hung for ten seconds."""
        since, loop = self._reading_since, self._loop
        return since is not None and loop is not None and loop.time() - since > STALLED

    async def run(self) -> None:
        """Read and compare until cancelled; raises what a signature raises, which is a bug in it."""
        loop = self._loop = asyncio.get_running_loop()
        # A lock and not an event, which costs more each time that the wait for it ends.
        stop = threading.Lock()
        stop.acquire()
        failed: asyncio.Future[None] = loop.create_future()

        def fail(error: Exception) -> None:
            if not failed.done():
                failed.set_exception(error)

        def work() -> None:
            try:
                while True:
                    if self._differs(loop):
                        loop.call_soon_threadsafe(self._tell)
                    if stop.acquire(timeout=until_tick(self._interval, loop.time())):
                        return
            except Exception as error:  # noqa: BLE001 - raised by run, whose supervisor logs it
                # The loop may be closed already when a reading that hung ends; then nobody needs the news.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(fail, error)

        # The first reading is only a base for comparison: the first scan covers what was before.
        self._last = []
        threading.Thread(target=work, name="polls", daemon=True).start()
        try:
            await failed
        finally:
            stop.release()

    def _differs(self, loop: asyncio.AbstractEventLoop) -> bool:
        self._reading_since = loop.time()
        heard, self._heard = self._heard, self._news()
        fresh = self._heard is None or self._heard != heard
        now: list[Hashable] = [signature(fresh) for signature in self._always]
        # A signature that is needed again has missed changes meanwhile.
        before = self._last[len(self._always) :] or [None] * len(self._sometimes)
        now += [
            signature(fresh or old is None) if needed() else None
            for (needed, signature), old in zip(self._sometimes, before, strict=True)
        ]
        self._reading_since = None
        self.count += 1
        last, self._last = self._last, now
        if last == now:
            return False
        # A signature that was not read before has nothing to compare with.
        return any(old is not None and new is not None and old != new for old, new in zip(last, now, strict=False))

    def _tell(self) -> None:
        self.changes.add()
        self._bus.publish(PolledChange())
