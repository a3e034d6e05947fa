"""``ostler`` whose moves wait at a step that a test names, so that any part can be killed just there.

A file in the folder, called as an ``InterfaceStep``, is renamed to ``reached`` by the next move that gets to this step;
the move goes on when somebody removes that.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

from driver.interfaces.moving import InterfaceMoves, InterfaceStep, InterfaceSteps
from ostler.agent import pod_interfaces
from ostler.cli.main import main

_FOLDER = "OSTLER_TEST_HOLD"
_REACHED = "reached"


def held_agent(folder: Path) -> tuple[str, ...]:
    """The command for an agent that looks for files in the folder."""
    return ("env", f"{_FOLDER}={folder}", sys.executable, "-m", __name__)


class AgentHold:
    """The test's side of the folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def at(self, step: InterfaceStep) -> None:
        """Hold the next move that gets to this step, and no other."""
        self.release()
        (self._folder / step.name).touch()

    def is_reached(self) -> bool:
        """Whether a move waits at the step."""
        return (self._folder / _REACHED).exists()

    def release(self) -> None:
        """Let moves go on."""
        for step in InterfaceStep:
            (self._folder / step.name).unlink(missing_ok=True)
        (self._folder / _REACHED).unlink(missing_ok=True)


class _HeldSteps(InterfaceSteps):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reached(self, step: InterfaceStep, uid: str) -> None:
        reached = self._folder / _REACHED
        try:
            (self._folder / step.name).rename(reached)
        except FileNotFoundError:
            return
        while reached.exists():
            time.sleep(0.005)


if __name__ == "__main__":
    vars(pod_interfaces)["InterfaceMoves"] = partial(InterfaceMoves, steps=_HeldSteps(Path(os.environ[_FOLDER])))
    sys.exit(main())
