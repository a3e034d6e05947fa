"""Reports in the debug log what holds up the event loop, because the kubelet's calls wait for each of its steps.

A thread checks whether the loop still runs and, if it does not, what the loop's thread is doing: the loop itself could
report only afterwards, and not what it was. It costs about a hundred wakes a second, so it runs only at the log level
debug. If a loop is late while it waits for events, the machine holds it up and not a step, so that is not reported.
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
"""Seconds that a step of the loop may take before it is logged."""
LOOK = 0.004
"""Seconds between two checks, and between two signs of life."""
SHOWN = 4
"""How many of the innermost calls are named."""


class LoopMonitor:
    """Logs each step of the running loop that takes longer than ``LONG``, while ``run`` runs."""

    def __init__(self) -> None:
        self._alive = time.monotonic()
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()
        self.longest = 0.0
        """Seconds of the longest step so far."""

    async def run(self) -> None:
        """Monitor until cancelled; call it on the loop to monitor."""
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
