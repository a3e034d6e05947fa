"""The process' memory after the start: what the start needed is given back, what is there to stay is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import Awaitable, Callable

SETTLING = 2.0
"""Seconds after the first lists were shown in which the last modules are loaded."""


async def tidy(settled: Callable[[], Awaitable[None]]) -> None:
    """Leave everything that is loaded out of later collections, once it is loaded.

    The collector is off until then (``ostler.cli.main``): hardly anything of a start ever becomes garbage. It is not
    collected either: that would hold up the event loop, and the kubelet's calls, for 25 ms, and give back half a
    megabyte.
    """
    await settled()
    await asyncio.sleep(SETTLING)
    gc.freeze()
    gc.enable()
    await asyncio.to_thread(_trim)


def _trim() -> None:
    """Give the C library's free pages back to the kernel."""
    with contextlib.suppress(OSError, AttributeError):
        # A C library other than glibc has no such function; then nothing is given back.
        ctypes.CDLL(None).malloc_trim(0)
