"""Exit codes, and the one place where faults become one of them."""

from __future__ import annotations

import sys
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; ``ostler --help`` lists them."""

    OK = 0
    FAILED = 1
    """Something went wrong while working; the message says what."""
    USAGE = 2
    """The command line itself is wrong (argparse's code)."""
    CONFIG = 3
    """The configuration is not usable; every problem is listed."""
    NO_AGENT = 4
    """A command needs a running agent and none answers."""


class CommandFailed(Exception):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


def complain(message: str) -> None:
    """A message for people, on standard error; names from elsewhere in it cannot steer the terminal."""
    # Here and not above: only a command that fails needs it.
    from ostler.drawing.text import plain

    sys.stderr.write("\n".join(map(plain, f"ostler: {message}".split("\n"))) + "\n")
