"""How long a question to the allocator may take, and what a terminal shows meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from ostler.drawing.text import plain

PATIENCE = 10.0
"""Seconds to find out whether the claims fit on a node, which is how long the scheduler searches there."""
WHAT_IF = 1.0
"""Seconds to find out what would be if something were different."""
QUIET = 1.0
"""Seconds before anything is shown."""
STEP = 0.1
"""Seconds between two changes."""


class Progress:
    """One line on a terminal that says what is going on. It is overwritten each time and wiped at the end."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        """``clock``: seconds, never going back."""
        self._stream = stream
        self._clock = clock
        self._begin = clock()
        self._last = self._begin
        self._shown = False

    def nodes(self, done: int, count: int) -> None:
        """Show how many of all nodes are done."""
        self.say(f"looking at nodes: {done} of {count}")

    def say(self, what: str) -> None:
        """Show what is going on."""
        now = self._clock()
        if now - self._begin < QUIET or now - self._last < STEP or not self._stream.isatty():
            return
        self._last, self._shown = now, True
        self._stream.write(f"\r\x1b[K{plain(what)}")
        self._stream.flush()

    def end(self) -> None:
        """Wipe the line."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


def patience(total: float) -> Callable[[bool], Callable[[], bool]]:
    """A deadline for each question to the allocator, and one after ``total`` seconds for all of them together."""
    last = time.monotonic() + total

    def begin(what_if: bool) -> Callable[[], bool]:
        end = min(last, time.monotonic() + (WHAT_IF if what_if else PATIENCE))
        return lambda: time.monotonic() > end

    return begin
