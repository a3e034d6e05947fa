"""The sandbox's tour of a recorded node and what is typed at its prompt: each made once per test run, for all workers.

Trade-off: a worker that needs a sandbox's output while another makes it waits for it; starting a second sandbox costs
more.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


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
    command = [sys.executable, "-m", "ostler", "sandbox", *words]
    if isinstance(typed, str):
        done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False, timeout=240)
    else:
        with typed.open() as given:
            done = subprocess.run(command, stdin=given, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def tour_of(node: str, run_dir: Path) -> dict[str, Any]:
    """What ``ostler sandbox --once`` prints: JSON and nothing else, and nothing on standard error."""
    tour: dict[str, Any] = json.loads(made_once(run_dir / f"tour-{node}.json", lambda: _tour(node)))
    return tour


def _tour(node: str) -> str:
    out, err = sandbox("--once", "--node", node, typed=Path("/dev/null"))
    assert err == ""
    assert isinstance(json.loads(out), dict)
    return out
