"""How often other threads wake an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class CountedWakeups:
    """Counts calls of ``call_soon_threadsafe`` of ``loop`` from now on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count = 0
        self._call: Callable[..., asyncio.Handle] = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = self  # type: ignore[method-assign, assignment]

    def __call__(self, *arguments: Any, **options: Any) -> asyncio.Handle:
        self.count += 1
        return self._call(*arguments, **options)
