"""Tasks that go on when their callers go away, those that wait for a time, and faults of work that nobody waits for.

What has begun on the disk or in the kernel must not stop halfway, and what goes wrong in it must not pass unseen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger("ostler.tasks")

T = TypeVar("T")


class Alarm(asyncio.Event):
    """An event for which one task waits for a limited time, again and again.

    A wait whose time is over costs less than one inside ``asyncio.timeout``, which ends it by a cancellation.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pause: asyncio.Future[None] | None = None

    def set(self) -> None:
        """End the wait, and every later one until ``clear``."""
        super().set()
        if self._pause is not None:
            _end(self._pause)

    async def wait_until(self, when: float) -> None:
        """Wait until it is set, or until this time of the loop's clock."""
        if self.is_set():
            return
        loop = asyncio.get_running_loop()
        pause = self._pause = loop.create_future()
        timer = loop.call_at(when, _end, pause)
        try:
            await pause
        finally:
            timer.cancel()
            self._pause = None


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


class LastingTasks:
    """Keeps tasks until they have ended; for the event loop only. A caller that may be cancelled shields its await.

    ``expected``: errors that callers or later attempts report. Any other is a bug, and is logged in any case, because
    its caller may be gone.
    """

    def __init__(self, *expected: type[Exception]) -> None:
        self._expected = expected
        self._running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """The work as a task of this name, which the log uses."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        report_fault(task, name, self._expected)
        return task

    async def wait(self) -> None:
        """Return when all of them have ended, those included that begin meanwhile."""
        while self._running:
            await asyncio.wait(self._running)

    async def cancel(self) -> None:
        """Cancel all of them, and return when they have ended."""
        tasks = tuple(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def report_fault(work: asyncio.Future[Any], name: str, expected: tuple[type[Exception], ...] = ()) -> None:
    """Have what ends this work logged, unless it is expected; for work whose caller does not wait for it.

    Without this, asyncio reports it when the last reference is gone, in a line without fields, or never.
    """
    work.add_done_callback(partial(_log_fault, name, expected))


def _log_fault(name: str, expected: tuple[type[Exception], ...], work: asyncio.Future[Any]) -> None:
    fault = None if work.cancelled() else work.exception()
    if isinstance(fault, Exception) and not isinstance(fault, expected):
        error = f"{type(fault).__name__}: {fault}"
        log.error("a background task failed unexpectedly", extra={"task": name, "error": error}, exc_info=fault)
