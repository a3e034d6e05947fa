"""The sandbox's tour of a recorded node as JSON: made once per test run, for all workers of the run.

Trade-off: a worker that needs a tour while another makes it waits for it; starting a second sandbox costs more.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def tour_of(node: str, run_dir: Path) -> dict[str, Any]:
    """What ``ostler sandbox --once`` prints: JSON and nothing else, and nothing on standard error."""
    file = run_dir / f"tour-{node}.json"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            written = file.with_suffix(".new")
            written.write_text(_made(node))
            written.rename(file)
    tour: dict[str, Any] = json.loads(file.read_text())
    return tour


def _made(node: str) -> str:
    command = [sys.executable, "-m", "ostler", "sandbox", "--once", "--node", node]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert isinstance(json.loads(done.stdout), dict)
    return done.stdout
