"""An event loop whose clock moves only when nobody has anything to do: hours pass in milliseconds, and repeatably.

What others do in threads is done at once, in the loop's thread, and its result is told a moment later; so a run depends
on nothing but its inputs.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from tests.waiting import background

T = TypeVar("T")
START = 1000.0
"""What the clock shows when a loop begins."""


class _Clock:
    """Stands where a loop expects what waits for files: waiting is all that moves the time."""

    def __init__(self) -> None:
        self.now = START

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise AssertionError("everybody waits for something that nobody will do")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """``disk``: seconds that anything done in a thread takes; ``network``: those that the API server's client needs."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = _Clock()
        self.disk = 0.001
        self.network = 0.05
        self._selector = self.clock
        self.faults: list[dict[str, Any]] = []
        """What nobody caught: a test fails by it."""
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    def time(self) -> float:
        return self.clock.now

    def unix(self) -> float:
        """The time of day."""
        return 1.7e9 + self.clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.done():
                return  # Whoever ordered it has died.
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it learns of it
                future.set_exception(error)
            else:
                future.set_result(result)

        asks = getattr(executor, "_thread_name_prefix", "").startswith("resource api")
        self.call_later(self.network if asks else self.disk, work)
        return future

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; whatever else is due meanwhile is done, too."""
        return self.run_until_complete(work)

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        self.run_until_complete(asyncio.sleep(seconds))

    def discard(self) -> None:
        """End everything that is under way, without a word."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def _process_events(self, event_list: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def beside(
    make: Callable[[], T], run: Callable[[T], Coroutine[Any, Any, None]], story: Callable[[T], Awaitable[None]]
) -> T:
    """Play ``story`` while what ``make`` gives, on the loop, runs."""

    async def play() -> T:
        made = make()
        async with background(run(made)) as task:
            await asyncio.sleep(0)
            await story(made)
            if task.done():
                task.result()
        return made

    loop = VirtualLoop()
    loop.disk = 0.0
    try:
        made = loop.run(play())
    finally:
        loop.close()
    assert not loop.faults, loop.faults
    return made


def play(work: Coroutine[Any, Any, T]) -> T:
    """The work's result, on a loop of its own."""
    loop = VirtualLoop()
    try:
        result = loop.run(work)
        assert not loop.faults, loop.faults
        return result
    finally:
        loop.discard()


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs on a loop of its own: it needs no machine to be in time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        play(test(*args, **kwargs))

    return run


def now() -> float:
    """Seconds since the story began."""
    return asyncio.get_running_loop().time() - START
