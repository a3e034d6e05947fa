"""One thing at a time for one claim; claims never wait for each other here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class ClaimLocks:
    """A lock for every claim that something is done with."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, uid: str) -> AsyncIterator[None]:
        """Wait for the claim's turn, and have it."""
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
        """Whether something is done with the claim, or wants to be."""
        return uid in self._locks
