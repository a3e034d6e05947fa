"""The program that is judged: how it is started, ended and measured."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ProcessSize:
    """What a program takes of the machine: anonymous memory in KiB, and open file descriptors."""

    memory: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: whether in time, its exit code (negative: a signal), and after how many seconds."""

    in_time: bool
    code: int | None
    seconds: float


class JudgedProgram(Protocol):
    """A program that can be started any number of times, one at a time."""

    async def start(self) -> None:
        """Start it; raises ``NotReady`` where that cannot be."""

    async def end(self, number: signal.Signals, within: float) -> ProgramEnd:
        """End it by a signal, and kill it if it has not ended ``within`` seconds."""

    def ended(self) -> str:
        """How it ended by itself, with the end of its log; empty while it runs."""

    def size(self) -> ProcessSize | None:
        """What it takes now, its children included; None where that cannot be measured."""


def size_of(pid: int) -> ProcessSize | None:
    """What a process and its descendants take; None if it is gone."""
    pids = [pid]
    memory = descriptors = 0
    while pids:
        each = Path("/proc") / str(pids.pop())
        try:
            status = (each / "status").read_text()
            descriptors += sum(1 for _ in (each / "fd").iterdir())
            for task in (each / "task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # Ended meanwhile.
        memory += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
    return ProcessSize(memory, descriptors) if memory else None
