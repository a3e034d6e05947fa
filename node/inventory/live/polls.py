"""Compares signatures in a thread of its own: often what changes without an event, rarely what events report.

A thread and not the loop, because a reading may hang for as long as a device's firmware does; its own and not the pool
of the loop, because handing over each time costs more than the readings. It is a daemon thread: a reading that hangs
must not keep the process from ending.

Most of a reading's cost is the wake-up. So a node where nothing changes without an event is read at the ticks of
``SELDOM``, in case an event was lost, and at once after an event. Invariant: every folder is watched before it is read,
so a change is either in the reading or an event after it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

from node.clocks import SELDOM, until_tick
from node.directories import Inotify, KernelInotify
from node.events import EventBus
from node.inventory.live.signatures import Signature
from node.metrics import Counter
from node.values import Value, value

INTERVAL = 0.9
"""Seconds between readings of what changes without an event: a change is in a snapshot within a second."""
ATTENTIVE = 30.0
"""Seconds for which everything is read at that pace after a hint: a driver that is being loaded makes its folders after
the last event."""
GATHERED = 0.05
"""Seconds that a reading waits after an event, so that a burst of events causes few readings."""
STALLED = 10.0
"""Seconds after which a reading counts as hanging."""


@value
class PolledChange(Value):
    """A signature differs from the one before."""


class FolderEvents:
    """Wakes its reader when an entry of one of ``folders`` comes, goes or is renamed; inotify's events, never what.

    devtmpfs reports also the files that the kernel makes, to every mount of it.

    ``open``, ``drain`` and ``close`` belong to the thread of the loop, ``cover`` to the reader's.
    """

    def __init__(self, folders: Sequence[str], open_watch: Callable[[], Inotify] = KernelInotify) -> None:
        self._folders = tuple(sorted(folders))
        self._open = open_watch
        self._inotify: Inotify | None = None

    def open(self) -> int | None:
        """The descriptor to wait on; None if the kernel grants no inotify instance, and then nothing is covered."""
        try:
            self._inotify = self._open()
        except OSError:
            return None
        return self._inotify.fileno()

    def cover(self) -> bool:
        """Watch the folders that are there now; whether every later change of any of them is an event.

        A folder that does not exist is covered by its parent. Watching a folder again changes nothing, and one that
        replaced another is watched by its path.
        """
        inotify = self._inotify
        if inotify is None:
            return False
        watched = set()
        for folder in self._folders:
            try:
                inotify.add_watch(folder, _MASK)
            except (FileNotFoundError, NotADirectoryError):
                if folder.rpartition("/")[0] not in watched:
                    return False
            except OSError:
                return False  # The user's limit of watches is reached, or the watch has just been closed.
            watched.add(folder)
        return True

    def drain(self) -> None:
        """Take the events off the descriptor."""
        if self._inotify is not None:
            self._inotify.read()

    def close(self) -> None:
        """Stop watching; it may be opened again."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None


_ONLY_FOLDERS, _CREATE, _DELETE, _MOVED, _SELF = 0x01000000, 0x100, 0x200, 0xC0, 0xC00
_MASK = _ONLY_FOLDERS | _CREATE | _DELETE | _MOVED | _SELF


class Polls:
    """Publishes ``PolledChange`` on ``bus``, on the loop.

    ``always`` and ``sometimes`` change without an event; ``sometimes`` pairs a signature with whether it is needed at
    the moment. One whose value is empty has nothing to read until hardware comes. Changes of what is ``reported`` are
    events of ``folders`` or hints. ``news`` changes when hardware has come or gone; None if no source reports that.

    ``hint`` and ``run`` belong to the thread of the loop.
    """

    name = "polls"

    def __init__(
        self,
        bus: EventBus,
        always: Sequence[Signature],
        sometimes: Sequence[tuple[Callable[[], bool], Signature]] = (),
        *,
        reported: Sequence[Signature] = (),
        folders: FolderEvents | None = None,
        news: Callable[[], Hashable] = lambda: None,
        interval: float = INTERVAL,
        seldom: float = SELDOM,
        attentive: float = ATTENTIVE,
    ) -> None:
        self._bus = bus
        self._news = news
        self._heard: Hashable = None
        self._always = tuple(always)
        self._sometimes = tuple(sometimes)
        self._reported = tuple(reported)
        self._folders = FolderEvents(()) if folders is None else folders
        self._interval = interval
        self._seldom = seldom
        self._attentive = attentive
        self._until = 0.0
        """Until when everything is read at the pace ``interval``."""
        self._net = 0.0
        """When ``reported`` is read although nothing was reported."""
        self._covered = False
        """Whether all changes of what is ``reported`` are events."""
        self._unreported = True
        """Whether there is anything that changes without an event."""
        self._last: list[Hashable] = []
        self._reading_since: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # A lock and not an event, which costs more each time that the wait for it ends. Only the loop releases it.
        self._bell = threading.Lock()
        self.changes = Counter("ostler_polled_changes", "Changes found by polling what causes no event.")
        self.count = 0

    @property
    def stalled(self) -> bool:
        """Whether a reading has hung for ten seconds."""
        since, loop = self._reading_since, self._loop
        return since is not None and loop is not None and loop.time() - since > STALLED

    def hint(self) -> None:
        """Read soon, and often for a while: hardware may have come, or a source of events may have failed."""
        if self._loop is not None:
            self._until = self._loop.time() + self._attentive
            self._ring()

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    async def run(self) -> None:
        """Read and compare until cancelled; raises what a signature raises, which is a bug in it."""
        loop = self._loop = asyncio.get_running_loop()
        bell = self._bell = threading.Lock()
        bell.acquire()
        over = False
        failed: asyncio.Future[None] = loop.create_future()

        def fail(error: Exception) -> None:
            if not failed.done():
                failed.set_exception(error)

        def work() -> None:
            try:
                rung = True
                while not over:
                    if self._differs(loop, rung=rung):
                        loop.call_soon_threadsafe(self._publish)
                    rung = bell.acquire(timeout=until_tick(self._pace(loop.time()), loop.time()))
                    if rung and not over:
                        time.sleep(GATHERED)
            except Exception as error:  # noqa: BLE001 - raised by run, whose supervisor logs it
                # The loop may be closed already when a reading that hung ends; then nobody needs the news.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(fail, error)

        # The first reading is only a base for comparison: the first scan covers what was before.
        self._last, self._covered = [], False
        self._until = loop.time() + self._attentive
        events = self._folders.open()
        if events is not None:
            loop.add_reader(events, self._folder_changed)
        threading.Thread(target=work, name="polls", daemon=True).start()
        try:
            await failed
        finally:
            over = True
            self._ring()
            if events is not None:
                loop.remove_reader(events)
            self._folders.close()

    def _folder_changed(self) -> None:
        self._folders.drain()
        self._ring()

    def _pace(self, now: float) -> float:
        """Seconds between two readings at present."""
        often = now < self._until or not self._covered or self._unreported
        return self._interval if often else self._seldom

    def _differs(self, loop: asyncio.AbstractEventLoop, *, rung: bool) -> bool:
        began = self._reading_since = loop.time()
        heard, self._heard = self._heard, self._news()
        fresh = self._heard is None or self._heard != heard
        unreported, rest = len(self._always), len(self._always) + len(self._reported)
        now: list[Hashable] = [signature(fresh) for signature in self._always]
        rung = rung or self._heard is None
        if rung or not self._covered or began >= self._net:
            self._net = began + until_tick(self._seldom, began) - self._interval / 2
            self._covered = not self._reported or self._folders.cover()
            now += [signature(rung) for signature in self._reported]
        else:
            now += self._last[unreported:rest]
        # A signature that is needed again has missed changes meanwhile.
        before = self._last[rest:] or [None] * len(self._sometimes)
        now += [
            signature(fresh or old is None) if needed() else None
            for (needed, signature), old in zip(self._sometimes, before, strict=True)
        ]
        self._unreported = any(now[:unreported]) or any(now[rest:])
        self._reading_since = None
        self.count += 1
        last, self._last = self._last, now
        if last == now:
            return False
        # A signature that was not read before has nothing to compare with.
        return any(old is not None and new is not None and old != new for old, new in zip(last, now, strict=False))

    def _publish(self) -> None:
        self.changes.add()
        self._bus.publish(PolledChange())
