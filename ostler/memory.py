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
    """Collect once everything is loaded, and leave the rest out of later collections.

    The collector is off until then (``ostler.cli.main``): nothing that is imported ever becomes garbage.
    """
    await settled()
    # What is loaded from here on fills the holes.
    gc.collect()
    await asyncio.sleep(SETTLING)
    gc.enable()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        # A C library other than glibc has no such function; then nothing is given back.
        ctypes.CDLL(None).malloc_trim(0)
