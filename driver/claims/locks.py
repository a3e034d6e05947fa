"""Keeps calls about claims apart: one lock per claim, waits that end with this instance, and tombstones.

One call at a time works on a claim, and claims never wait for each other here. A call that waits for somebody else (the
API server, another claim's device) has not changed anything yet, so it need not be finished and ends when this instance
ends.

A tombstone marks a claim that was released lately: a call that began before the release comes too late. Tombstones are
bounded in number and age. One claim can serve several pods one after the other and may be prepared again, so a
tombstone refuses only calls that began before it was set.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import TypeVar

from driver.claims.model import Unavailable
from node.clocks import Clocks


class ClaimLocks:
    """A lock for every claim that a call works on."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, uid: str) -> AsyncIterator[None]:
        """Wait for the claim's lock, and hold it."""
        lock, users = self._locks.get(uid, (asyncio.Lock(), 0))
        self._locks[uid] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[uid]
            if users == 1:
                del self._locks[uid]
            else:
                self._locks[uid] = lock, users - 1

    def busy(self, uid: str) -> bool:
        """Whether a call works on the claim, or waits to."""
        return uid in self._locks


T = TypeVar("T")
_ENDING = "this instance of the driver is stopping; its successor answers from now on"


class Waits:
    """The waits of all calls; they end when the instance does (``end``)."""

    def __init__(self) -> None:
        self.ended = False
        self._tasks: set[asyncio.Task[object]] = set()

    def check(self) -> None:
        """Raise Unavailable if this instance is ending."""
        if self.ended:
            raise Unavailable(_ENDING)

    async def of(self, work: Coroutine[None, None, T]) -> T:
        """Wait for the work and return its result; raises Unavailable if this instance ends first."""
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
        """End all waits, present and future."""
        self.ended = True
        for task in self._tasks:
            task.cancel()


MOST = 4096


class Tombstones:
    """UIDs in the order of their release; ages are by a monotonic clock."""

    def __init__(self, age: float, clocks: Clocks, most: int = MOST) -> None:
        self.serial = 0
        """How many were ever set; a call that began at a number is overtaken by tombstones with a greater one."""
        self._age = age
        self._most = most
        self._monotonic = clocks.monotonic
        self._set: dict[str, tuple[int, float]] = {}

    def add(self, uid: str) -> None:
        """Remember that the claim is released now."""
        now = self._monotonic()
        self.serial += 1
        self._set.pop(uid, None)
        self._set[uid] = self.serial, now
        while len(self._set) > self._most or self._old(next(iter(self._set))):
            del self._set[next(iter(self._set))]

    def serial_of(self, uid: str) -> int | None:
        """The number of the claim's release, None if it was not released lately."""
        return self._set[uid][0] if uid in self._set and not self._old(uid) else None

    def _old(self, uid: str) -> bool:
        return self._set[uid][1] + self._age <= self._monotonic()

    def __len__(self) -> int:
        return len(self._set)
