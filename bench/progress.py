"""What a benchmark does at the moment, for whoever watches it."""

from __future__ import annotations

import sys


def say(what: str) -> None:
    """Show it on one line that is overwritten; nothing where nobody looks."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what}")
        sys.stderr.flush()
