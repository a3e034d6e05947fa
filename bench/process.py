"""A measured process: started, looked at through /proc, ended by a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

KIB = 1024
ENDS_WITHIN = 60.0
"""Seconds that a process may take to end, on a machine that has much else to do."""


class ProcessFailed(Exception):
    """A measured process ended by itself or would not end; the end of its log says why."""

    def __init__(self, problem: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-10:] if log.exists() else []
        super().__init__("\n  ".join((f"{problem}; the end of its log:", *lines)))


class Measured:
    """``command`` as a process whose output goes to ``log``; ``started_at`` is ``time.perf_counter``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = {**clean_environment(), **environment}
        self._process: asyncio.subprocess.Process | None = None
        self.log = log
        self.started_at = 0.0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.started_at = time.perf_counter()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; raises ``ProcessFailed`` when the process ended before."""
        if self._process is None or self._process.returncode is not None:
            raise ProcessFailed("the process ended by itself", self.log)
        self._process.send_signal(number)

    async def ended(self) -> None:
        """Wait for its end, however long it runs."""
        assert self._process is not None
        await self._process.wait()

    async def until(self, coming: Coroutine[Any, Any, T]) -> T:
        """What comes; raises ``ProcessFailed`` at once when the process ends before."""
        awaited, ended = asyncio.ensure_future(coming), asyncio.ensure_future(self.ended())
        await asyncio.wait((awaited, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not awaited.done():
            awaited.cancel()
            raise ProcessFailed("the process ended before it registered", self.log)
        return awaited.result()

    async def wait(self) -> None:
        """Wait for its end; it is killed after ``ENDS_WITHIN`` and ``ProcessFailed`` raised."""
        assert self._process is not None
        try:
            await asyncio.wait_for(self._process.wait(), ENDS_WITHIN)
        except TimeoutError as error:
            self._process.kill()
            await self._process.wait()
            raise ProcessFailed(f"the process did not end within {ENDS_WITHIN:g} s of SIGTERM", self.log) from error

    async def stop(self) -> None:
        """End it by SIGTERM, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self.wait()

    @property
    def rss_bytes(self) -> int:
        """Resident memory (VmRSS)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * KIB
        raise ProcessFailed("the process has no memory any more", self.log)

    @property
    def threads(self) -> int:
        """Threads of any kind, also those of gRPC's core."""
        return len(os.listdir(f"/proc/{self.pid}/task"))  # noqa: PTH208

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far, in nanosecond steps (/proc counts in steps of 10 ms)."""
        # The kernel's number of another process' CPU clock, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~self.pid << 3) | 2)


def agent_command(flags: Mapping[str, str]) -> list[str]:
    """``ostler run`` with these flags."""
    return [sys.executable, "-m", "ostler", "run", *(word for pair in flags.items() for word in pair)]


async def install_bytecode() -> None:
    """Make the file from which agents load their modules, as every installation of ostler does."""
    command = (sys.executable, "-m", "ostler.cli.bytecode")
    making = await asyncio.create_subprocess_exec(*command, env=clean_environment())
    if await making.wait():
        raise subprocess.CalledProcessError(making.returncode or 0, command)


def agent_folders(root: Path, plugins: Path, registry: Path, socket: Path) -> dict[str, str]:
    """The flags of an agent that calls Register in the folder ``plugins`` and keeps all else below ``root``."""
    return {
        "--kubelet-device-plugin-dir": str(plugins),
        "--kubelet-registry-dir": str(registry),
        "--kubelet-registration": "register",
        "--cdi-dir": str(root / "cdi"),
        "--cdi-spec-dirs": str(root / "cdi"),
        "--state-dir": str(root / "state"),
        "--socket": str(socket),
        "--http": "off",
    }


def clean_environment() -> dict[str, str]:
    """This environment without what would change the measured processes; modules are loaded from bytecode."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME", "NOTIFY_SOCKET", "GRPC_VERBOSITY")
    return {name: value for name, value in os.environ.items() if name not in dropped and not name.startswith("OSTLER_")}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without collections of garbage in the client, which would show up as the plugins' 99th percentile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
