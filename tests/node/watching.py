"""A process that writes what it sees as JSON lines: watched from a test."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

Shown = dict[str, Any]


class WatchingProcess:
    """``latest`` is the last of the ``lines`` read so far."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.latest: Shown = {}
        self.lines = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """The process does nothing while this lasts."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def writes(self, condition: Callable[[Shown], object], within: float = 120.0) -> Shown:
        """The next line that is as it should be; fails after ``within`` seconds."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within):
                while True:
                    line = await self._process.stdout.readline()
                    assert line, "the watcher has ended"
                    self.latest = json.loads(line)
                    self.lines += 1
                    if condition(self.latest):
                        return self.latest
        except TimeoutError:
            pytest.fail(f"not seen within {within} s; last seen: {self.latest}")
