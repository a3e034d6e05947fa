"""The program that is judged: how it is started, ended and measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from node.opening import read_kernel_text
from sandbox.conformance.rule import CannotJudge
from sandbox.kubelet.plugin_process import PluginProcess, PluginStartError

_OTHERWISE: Final = "start it yourself and give its socket: ostler conformance ... --socket PATH"
_LAST_LINES: Final = 3
"""Lines of a program's log that a verdict shows."""


@dataclass(frozen=True, slots=True)
class ProcessSize:
    """The size of a program: anonymous memory in KiB, and open file descriptors."""

    memory: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended by SIGTERM: whether within its grace period, and after how many seconds."""

    in_time: bool
    seconds: float


class JudgedProgram(Protocol):
    """A program that can be started any number of times, one at a time."""

    async def start(self) -> None:
        """Start it; raises ``CannotJudge`` if that fails."""

    async def terminate(self) -> ProgramEnd:
        """End it by SIGTERM, and kill it when its grace period is over."""

    async def stop(self) -> None:
        """End it as fast as possible, without judging how it ends; can be called again."""

    async def kill(self) -> None:
        """End it by SIGKILL."""

    def ended(self) -> str:
        """Say how it ended by itself, with the end of its log; empty while it runs."""

    def size(self) -> ProcessSize | None:
        """Its size now, its children included; None where that cannot be measured."""


def size_of(pid: int) -> ProcessSize | None:
    """The size of a process and its descendants; None if it is gone."""
    pids = [pid]
    memory = descriptors = 0
    while pids:
        each = Path("/proc") / str(pids.pop())
        try:
            status = read_kernel_text(each / "status")
            descriptors += sum(1 for _ in (each / "fd").iterdir())
            threads = tuple((each / "task").iterdir())
        except OSError:
            continue  # Ended meanwhile.
        for thread in threads:
            with contextlib.suppress(OSError):  # This one has ended meanwhile; the process has not.
                pids += map(int, read_kernel_text(thread / "children").split())
        memory += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
    return ProcessSize(memory, descriptors) if memory else None


class CommandProgram:
    """A command that finds the kubelet's folder ``root`` at /var/lib/kubelet; ``close`` it after use.

    ``folders``: further folders of ours by the path at which the command finds them. ``log`` gets every line it writes.
    """

    def __init__(
        self,
        command: Sequence[str],
        root: Path,
        *,
        grace: float,
        environment: Mapping[str, str],
        folders: Mapping[Path, Path],
        log: Callable[[str], None],
    ) -> None:
        self._process = PluginProcess(
            command, root, log=log, environment=environment, grace=grace, folders=folders, otherwise=_OTHERWISE
        )
        self._ignores_end = False

    async def start(self) -> None:
        """See ``JudgedProgram``."""
        try:
            await self._process.start()
        except PluginStartError as error:
            raise CannotJudge(str(error)) from error

    async def terminate(self) -> ProgramEnd:
        """See ``JudgedProgram``."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        ended = await self._process.terminate()
        self._ignores_end = ended is not None and bool(ended.overran)
        return ProgramEnd(not self._ignores_end, loop.time() - began)

    async def stop(self) -> None:
        """See ``JudgedProgram``."""
        if self._ignores_end:
            await self.kill()
        else:
            await self.terminate()

    async def kill(self) -> None:
        """See ``JudgedProgram``."""
        await self._process.kill()

    async def close(self) -> None:
        """End it and remove what was made for it."""
        await self.stop()
        await self._process.end()

    def ended(self) -> str:
        """See ``JudgedProgram``."""
        found = self._process.exit
        if found is None or found.asked:
            return ""
        lines = self._process.lines_of_run[-_LAST_LINES:]
        return f"{found}; the end of its log: {' | '.join(lines)}" if lines else f"{found} and wrote no log"

    def size(self) -> ProcessSize | None:
        """See ``JudgedProgram``."""
        return size_of(self._process.pid) if self._process.running else None
