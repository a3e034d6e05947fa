"""Waiting for a condition instead of sleeping, and work beside a test that ends with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar, overload

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.05
"""Seconds between two looks at a condition."""


@overload
async def eventually(condition: Callable[[], Coroutine[Any, Any, T]], what: str = "", within: float = 120.0) -> T: ...


@overload
async def eventually(condition: Callable[[], T], what: str = "", within: float = 120.0) -> T: ...


async def eventually(condition: Callable[[], Any], what: str = "", within: float = 120.0) -> Any:
    """Return the first true value of ``condition``; fail with ``what`` after ``within`` seconds.

    It is asked after 10 ms, and ever more seldom up to ``LONGEST_PAUSE``: the cores belong to what is waited for.
    """
    deadline = time.monotonic() + within
    pauses = _pauses()
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or condition}; last value {value!r}")
        await asyncio.sleep(next(pauses))


def until(condition: Callable[[], T], what: str = "", within: float = 120.0) -> T:
    """The same for tests without a loop, whose condition other threads make true."""
    deadline = time.monotonic() + within
    pauses = _pauses()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or condition}; last value {value!r}")
        time.sleep(next(pauses))
    return value


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(1.2 * pause, LONGEST_PAUSE)


@asynccontextmanager
async def background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Work until the end of the block, which fails with what the work failed with."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class CountedWakeups:
    """Counts calls of ``call_soon_threadsafe`` of ``loop`` from now on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count = 0
        self._call: Callable[..., asyncio.Handle] = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = self  # type: ignore[method-assign, assignment]

    def __call__(self, *arguments: Any, **options: Any) -> asyncio.Handle:
        self.count += 1
        return self._call(*arguments, **options)
