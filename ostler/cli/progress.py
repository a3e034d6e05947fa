"""One line on standard error that says what is going on, for work that takes longer than a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from ostler.drawing.text import plain

QUIET = 1.0
"""Seconds before anything is shown."""
STEP = 0.1
"""Seconds between two changes."""


class Progress:
    """Written over each time, wiped at the end, and only where a terminal is: nothing of it stays."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        """``clock``: seconds, never going back."""
        self._stream = stream
        self._clock = clock
        self._begin = clock()
        self._last = self._begin
        self._shown = False

    def nodes(self, done: int, count: int) -> None:
        """So many of all nodes are done."""
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
