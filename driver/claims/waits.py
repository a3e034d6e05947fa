"""Waiting for others that ends when this instance does: what has touched nothing yet need not be finished."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from driver.claims.errors import Unavailable

T = TypeVar("T")
_ENDING = "this instance of the driver ends; its successor answers from now on"


class Waits:
    """Everything that is waited for; ``ended`` once nothing may be any more."""

    def __init__(self) -> None:
        self.ended = False
        self._tasks: set[asyncio.Task[object]] = set()

    def check(self) -> None:
        """Raise Unavailable if this instance ends."""
        if self.ended:
            raise Unavailable(_ENDING)

    async def of(self, work: Coroutine[None, None, T]) -> T:
        """The result of the work; raises Unavailable when this instance ends before."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if self.ended and current is not None and not current.cancelling():
                raise Unavailable(_ENDING) from error
            raise
        finally:
            task.cancel()
            self._tasks.discard(task)

    def end(self) -> None:
        """End every wait, now and later."""
        self.ended = True
        for task in self._tasks:
            task.cancel()
