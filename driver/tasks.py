"""Tasks that go on when their callers go away: what has begun on the disk or in the kernel must not stop halfway."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LastingTasks:
    """Keeps tasks until they have ended; for the event loop only. A caller that may be cancelled shields its await."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """The work as a task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
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

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Taken here, so that asyncio does not report the exception of work whose caller went away.
            task.exception()
