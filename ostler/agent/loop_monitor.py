"""Notices when something holds up the event loop, for the debug log: the kubelet's calls wait for every step of it.

A thread looks whether the loop still turns and, where it does not, at what the loop's thread is doing: the loop itself
could only tell afterwards, and not what it was. It costs some hundred wakes a second, so it runs with the log level
debug alone. A loop that is late while it waits for events is held up by the machine and not by a step, and is not told.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType

log = logging.getLogger("ostler.agent")

LONG = 0.010
"""Seconds of a step of the loop that are worth a line."""
LOOK = 0.004
"""Seconds between two looks, and between two signs of life."""
SHOWN = 4
"""Innermost calls that are named."""


class LoopMonitor:
    """Logs each step of the running loop that takes longer than ``LONG``, while ``run`` runs."""

    def __init__(self) -> None:
        self._alive = time.monotonic()
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()
        self.longest = 0.0
        """Seconds of the longest step so far."""

    async def run(self) -> None:
        """Monitor until cancelled; to be called on the loop that is meant."""
        watch = threading.Thread(target=self._watch, name="loop monitor", daemon=True)
        self._alive = time.monotonic()
        watch.start()
        try:
            while True:
                await asyncio.sleep(LOOK)
                self._alive = time.monotonic()
        finally:
            self._ended.set()
            watch.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            began = self._alive
            if time.monotonic() - began <= LONG + LOOK:
                continue
            frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - CPython's only way
            place = "" if frame is None or frame.f_code.co_name == "select" else _place(frame)
            while self._alive == began and not self._ended.wait(LOOK):
                pass
            if not place:
                continue
            took = max(self._alive - began - LOOK, 0.0)
            self.longest = max(self.longest, took)
            log.debug("the event loop was held up", extra={"seconds": round(took, 4), "by": place})


def _place(frame: FrameType) -> str:
    """The innermost calls of a thread, outermost first."""
    stack = traceback.extract_stack(frame, limit=SHOWN)
    return " > ".join(f"{call.filename.rpartition('/')[2]}:{call.lineno} {call.name}" for call in stack)
