"""Loads modules after registration, and gives back memory once everything is loaded.

An import on the event loop delays every call that the kubelet makes meanwhile. In a thread it takes the interpreter's
lock from the loop for a moment at a time. While modules load, the lock changes hands ten times as often as usual; later
five times, because a thread that writes a claim's files needs the lock for a moment after each file operation. A part
that imports a module in a function after the kubelet has the device list loads it here first.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import sys

from ostler.cli.bytecode import settle

_SWITCH = 0.0005
"""Seconds after which a loading thread gives up the interpreter's lock to one that waits for it."""
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
"""Seconds between the starts of two parts once the kubelet has the list, so that an Allocate waits for one at most."""


class KubeletFirst:
    """Makes every part that the kubelet does not need wait: each module loaded earlier would cost start-up time."""

    def __init__(self) -> None:
        self._served = asyncio.Event()
        self._turns = asyncio.Lock()
        """Held by the part that may start next."""

    def served(self) -> None:
        """Note that the kubelet has the device lists, or that this instance waits as a standby."""
        self._served.set()

    async def turn(self) -> None:
        """Wait until one more part may be loaded."""
        with contextlib.suppress(TimeoutError):
            # A driver that hangs or a kubelet that is late must not keep people from asking why.
            async with asyncio.timeout(LATEST):
                await self._served.wait()
        async with self._turns:
            await asyncio.sleep(BETWEEN)


SETTLING = 1.0
"""Seconds without a new module after which everything counts as loaded."""


async def tidy(first: KubeletFirst) -> None:
    """Exclude everything that is loaded from later garbage collections, once it is loaded.

    The collector is off until then (``ostler.cli.main``): hardly anything of a start ever becomes garbage. This does
    not collect either: a collection would delay the event loop, and the kubelet's calls, by 25 ms, and free half a
    megabyte.
    """
    await first.turn()
    await asyncio.sleep(SETTLING)
    loaded = -1
    while loaded != len(sys.modules):
        # The second door loads for seconds on a busy node, and what it frees on the way would stay in the heap.
        loaded = len(sys.modules)
        await asyncio.sleep(SETTLING)
    with contextlib.suppress(OSError, ImportError):
        # ``ostler.cli.imports`` has left them out, and an error to be shown may be that no further file can be opened.
        await load("traceback", "tokenize")
    await asyncio.to_thread(settle)
    gc.freeze()
    gc.enable()
    await asyncio.to_thread(_trim)


def _trim() -> None:
    """Give the C library's free pages back to the kernel."""
    with contextlib.suppress(OSError, AttributeError):
        # C libraries other than glibc have no such function; then nothing is given back.
        ctypes.CDLL(None).malloc_trim(0)
