"""``ostler WORDS`` in the test's own process, for tests of what a command does and says.

An interpreter of its own costs a tenth of a second. Tests of the command line as such, of signals and of what is
loaded need one; others do not.
"""

from __future__ import annotations

import asyncio
import io
import threading
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from ostler.cli.main import main

_ONE_AT_A_TIME = threading.Lock()
"""Standard output and standard error are the process's."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The exit code of a command, and what it wrote."""

    code: int
    out: str
    err: str


async def command(*words: str) -> CommandOutput:
    """Run ``ostler WORDS`` in a thread, as a command that asks an agent blocks."""
    return await asyncio.to_thread(_run, words)


def _run(words: tuple[str, ...]) -> CommandOutput:
    with _ONE_AT_A_TIME, redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(words)
    return CommandOutput(code, out.getvalue(), err.getvalue())
