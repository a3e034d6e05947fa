"""Processes that die in the middle of their work, forked from one that has imported what they run.

``python -m tests.making.dying`` is that one. It has no threads, so that it can fork, and reads orders from standard
input, one JSON object a line. A fork costs a tenth of an interpreter of its own, which would import everything anew.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 60
"""Seconds that a process may live."""


@dataclass(frozen=True, slots=True)
class Death:
    """The exit code, below 0 for a signal, and what the process wrote."""

    code: int
    written: str


class DyingProcesses:
    """Runs a function of a module in a process of its own, again and again."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.making.dying"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, function: Callable[..., None], *arguments: str) -> Death:
        """Call the function with these arguments in a new process, and wait for its end."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with tempfile.NamedTemporaryFile() as output:
            order = {
                "module": function.__module__,
                "function": function.__name__,
                "arguments": arguments,
                "output": output.name,
            }
            self._parent.stdin.write(json.dumps(order) + "\n")
            self._parent.stdin.flush()
            code = int(self._parent.stdout.readline())
            return Death(code, output.read().decode())

    def close(self) -> None:
        """End the parent."""
        self._parent.communicate()


def _child(order: Mapping[str, Any], function: Callable[..., None]) -> None:
    signal.alarm(LONGEST)
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(order["output"], os.O_WRONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    function(*order["arguments"])


def main() -> None:
    """Carry out orders until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        function = getattr(importlib.import_module(order["module"]), order["function"])
        # A collection in a child would copy all pages.
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _child(order, function)
                code = 0
            except Exception:  # noqa: BLE001 - whatever it is, the test shows it
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
