"""What the process loads after registration, and how it gives back memory once everything is loaded.

An import on the event loop holds up every call that the kubelet makes meanwhile. In a thread it takes the interpreter's
lock from the loop for a moment at a time, and the lock changes hands ten times as often as usual while modules load;
later five times, because a thread that writes a claim's files needs the lock for a moment after each file operation.
A part that imports a module in a function, after the kubelet has the device list, loads it here first.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import sys

_SWITCH = 0.0005
"""Seconds after which a thread that loads gives up the interpreter's lock to one that waits for it."""
_RUNNING_SWITCH = 0.001
"""The same once everything is loaded."""


async def load(*names: str) -> None:
    """Load these modules, in this order, without holding up the event loop; raises what their import raises."""
    await asyncio.to_thread(_load, names)


def _load(names: tuple[str, ...]) -> None:
    sys.setswitchinterval(_SWITCH)
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        sys.setswitchinterval(_RUNNING_SWITCH)


LATEST = 1.0
"""Most seconds after the start that the agent's own socket and the probes wait for the kubelet."""
BETWEEN = 0.02
"""Seconds between two parts that begin once the kubelet has the list, so that an Allocate waits for one at most."""


class KubeletFirst:
    """Lets every part that the kubelet does not need wait a moment: each module loaded before costs start-up time."""

    def __init__(self) -> None:
        self._served = asyncio.Event()
        self._turns = asyncio.Lock()
        """Held by the part that may begin next."""

    def served(self) -> None:
        """The kubelet has the device lists, or this instance waits as a standby."""
        self._served.set()

    async def turn(self) -> None:
        """Wait until one more part may be loaded."""
        with contextlib.suppress(TimeoutError):
            # A driver that hangs or a kubelet that is late must not keep people from asking why.
            async with asyncio.timeout(LATEST):
                await self._served.wait()
        async with self._turns:
            await asyncio.sleep(BETWEEN)


SETTLING = 2.0
"""Seconds after the first lists were shown in which the last modules are loaded."""


async def tidy(first: KubeletFirst) -> None:
    """Leave everything that is loaded out of later collections, once it is loaded.

    The collector is off until then (``ostler.cli.main``): hardly anything of a start ever becomes garbage. It is not
    collected either: that would hold up the event loop, and the kubelet's calls, for 25 ms, and give back half a
    megabyte.
    """
    await first.turn()
    await asyncio.sleep(SETTLING)
    gc.freeze()
    gc.enable()
    await asyncio.to_thread(_trim)


def _trim() -> None:
    """Give the C library's free pages back to the kernel."""
    with contextlib.suppress(OSError, AttributeError):
        # A C library other than glibc has no such function; then nothing is given back.
        ctypes.CDLL(None).malloc_trim(0)
