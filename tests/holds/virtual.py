"""An event loop whose time passes only while everybody waits, so that minutes are over at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from tests.background import background

T = TypeVar("T")
START = 1000.0


class _Clock:
    """Stands where a loop expects what waits for files."""

    def __init__(self) -> None:
        self.now = START

    def select(self, timeout: float | None) -> list[object]:
        assert timeout is not None, "everybody waits for something that nobody will do"
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """What others do in threads is done at once."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self._clock = _Clock()

    def time(self) -> float:
        return self._clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        future.set_result(func(*args))
        return future

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def beside(running: Callable[[], Coroutine[Any, Any, None]], story: Callable[[], Awaitable[None]]) -> None:
    """Play ``story`` while ``running`` runs, in virtual time."""

    async def play() -> None:
        async with background(running()) as task:
            await story()
            if task.done():
                task.result()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def now() -> float:
    """Seconds since the story began."""
    return asyncio.get_running_loop().time() - START
