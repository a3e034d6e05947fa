"""The sandbox's tour of a recorded node and what is typed at its prompt: each made once per test run, for all workers.

Trade-off: a worker that needs a sandbox's output while another makes it waits for it; starting a second sandbox costs
more. For the same reason most sandboxes run in the test's own process, which has imported everything, and their agents
and commands are forked (``tests.making.forked_ostler``). Tests of the command as such, of its signals and of what a
new process imports start an interpreter: ``executed_sandbox``.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

from ostler.cli.main import main
from tests.making.patience import PATIENCE, SANDBOX_LIMITS


def made_once(file: Path, make: Callable[[], str]) -> str:
    """The text of ``file``, which the first one who asks for it makes while all others wait."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            written = file.with_suffix(".new")
            written.write_text(make())
            written.rename(file)
    return file.read_text()


def sandbox(*words: str, typed: str | Path = "", code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of ``ostler sandbox``; ``typed``: its standard input, or a file that is it."""
    with (
        _given(typed) as given,
        patch.object(sys, "stdin", given),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        ended = main(["sandbox", *words])
    assert ended == code, err.getvalue()
    return out.getvalue(), err.getvalue()


AS_IN_THE_POD = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
"""Starts a command as a root without capabilities."""


def executed_sandbox(*words: str, typed: str | Path = "", rights: Sequence[str] = ()) -> tuple[str, str]:
    """The same by an interpreter of its own, which starts interpreters for its agent and commands.

    ``rights``: the command that takes rights from it.
    """
    with _given(typed) as given:
        command = [*rights, sys.executable, "-c", _PATIENT, "sandbox", *words]
        done = subprocess.run(command, stdin=given, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@contextmanager
def _given(typed: str | Path) -> Iterator[IO[str]]:
    """Standard input: a pipe in which that has been typed, or the file."""
    if isinstance(typed, Path):
        with typed.open() as file:
            yield file
        return
    reads, writes = os.pipe()
    with os.fdopen(reads) as pipe:
        with os.fdopen(writes, "w") as keyboard:
            # What people type fits into a pipe, which nobody reads yet.
            keyboard.write(typed)
        yield pipe


_PATIENT = f"""
import sys
import sandbox.process, sandbox.waits
from ostler.cli.main import main
{" = ".join(SANDBOX_LIMITS)} = {PATIENCE}
sys.exit(main())
"""
"""``python -m ostler`` with the patience that sandboxes of this process have."""

EXECUTED = "l4-2"
"""The node whose tour is that of a new process: its imports, and the commands that it runs."""


def rights_of_executed() -> Sequence[str]:
    """What takes rights from that process: where it can be, it is as in a pod of the chart."""
    return AS_IN_THE_POD if os.geteuid() == 0 and shutil.which(AS_IN_THE_POD[0]) else ()


def tour_of(node: str, run_dir: Path) -> dict[str, Any]:
    """What ``ostler sandbox --once`` prints: JSON and nothing else, and nothing on standard error."""
    tour: dict[str, Any] = json.loads(made_once(run_dir / f"tour-{node}.json", lambda: _tour(node)))
    return tour


def _tour(node: str) -> str:
    words, nothing = ("--once", "--node", node), Path("/dev/null")
    if node == EXECUTED:
        out, err = executed_sandbox(*words, typed=nothing, rights=rights_of_executed())
    else:
        out, err = sandbox(*words, typed=nothing)
    assert err == "", err
    assert isinstance(json.loads(out), dict)
    return out
