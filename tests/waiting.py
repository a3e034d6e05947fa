"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(condition: Callable[[], T | Awaitable[T]], what: str = "", within: float = 10.0) -> T:
    """Return the first true value of ``condition``, asked every 10 ms; fail with ``what`` after ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or condition}; last value {value!r}")
        await asyncio.sleep(0.01)
